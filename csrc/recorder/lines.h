// The log line of a call, in one write; the texts are those of kernlib/logging/_log_sink.py.
#pragma once

#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <vector>

#include "recorder/text.h"

namespace kernlib::recorder {

// A file that takes lines, for people or as JSON.
struct Lines {
  int file;
  bool json;
};

// What is told of a call beside its values.
struct LineFacts {
  std::string_view event, api;
  int64_t call = 0, parent = 0;
  bool capturing = false, with_values = false;
  int64_t nanoseconds = -1;  // none for a start
};

// "2026-12-01T05:24:53.740318Z"; all but the fraction is kept for a second.
inline void append_time(std::string& out, uint64_t nanoseconds) {
  thread_local uint64_t known = ~uint64_t{0};
  thread_local char text[32];
  const uint64_t second = nanoseconds / 1'000'000'000u;
  if (second != known) {
    const time_t moment = static_cast<time_t>(second);
    tm parts;
    gmtime_r(&moment, &parts);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S.", &parts);
    known = second;
  }
  char fraction[8];
  uint64_t rest = nanoseconds % 1'000'000'000u / 1000;
  for (int at = 5; at >= 0; --at, rest /= 10) fraction[at] = static_cast<char>('0' + rest % 10);
  out.append(text).append(fraction, 6).append("Z");
}

inline void append_microseconds(std::string& out, int64_t nanoseconds) {
  const int64_t tenths = (nanoseconds + 50) / 100;
  append_integer(out, tenths / 10);
  out += '.';
  out += static_cast<char>('0' + tenths % 10);
}

template <typename Writer>
bool append_values(std::string& out, const std::vector<std::string>& names, const TVMFFIAny* values,
                   std::string_view before, std::string_view between, std::string_view colon) {
  Writer writer(out);
  for (size_t at = 0; at < names.size(); ++at) {
    out.append(at ? between : before).append(names[at]).append(colon);
    if (!write_value(values[at], writer)) return false;
  }
  return true;
}

inline bool append_console(std::string& out, const LineFacts& facts, uint64_t now,
                           const std::vector<std::string>& names, const TVMFFIAny* values) {
  append_time(out, now);
  out.append(" kernlib ").append(facts.event).append(" #");
  append_integer(out, facts.call);
  out.append(" ").append(facts.api);
  if (!append_values<ConsoleWriter>(out, names, values, " ", " ", "=")) return false;
  if (facts.parent) {
    out += " parent=";
    append_integer(out, facts.parent);
  }
  if (facts.capturing) out += " capturing=True";
  if (facts.nanoseconds >= 0) {
    out += " microseconds=";
    append_microseconds(out, facts.nanoseconds);
  }
  out += '\n';
  return true;
}

inline bool append_json(std::string& out, const LineFacts& facts, uint64_t now,
                        const std::vector<std::string>& names, const TVMFFIAny* values) {
  out.append(R"({"api":")").append(facts.api).append(R"(","call":)");
  append_integer(out, facts.call);
  if (facts.parent) {
    out += R"(,"parent":)";
    append_integer(out, facts.parent);
  }
  if (facts.capturing) out += R"(,"capturing":true)";
  if (facts.nanoseconds >= 0) {
    out += R"(,"microseconds":)";
    append_microseconds(out, facts.nanoseconds);
  }
  if (facts.with_values) {
    out += facts.nanoseconds >= 0 ? R"(,"outputs":{)" : R"(,"args":{)";
    if (!append_values<JsonWriter>(out, names, values, "\"", ",\"", "\":")) return false;
    out += '}';
  }
  out.append(R"(,"event":")").append(facts.event).append(R"(","timestamp":")");
  append_time(out, now);
  out += "\"}\n";
  return true;
}

// Hands a line to the kernel. The rest of one that was cut short follows; false, with errno, if
// the file takes no more.
inline bool write_line(int file, std::string_view line) {
  while (!line.empty()) {
    const ssize_t written = write(file, line.data(), line.size());
    if (written < 0 && errno != EINTR) return false;
    if (written > 0) line.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace kernlib::recorder
