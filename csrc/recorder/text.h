// Values as they stand in a log line: for people as in Python's repr, or as JSON.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>
#include <string_view>

#include "recorder/values.h"

namespace kernlib::recorder {

// The shortest decimal digits of a finite number, and the power of ten of the first.
struct Digits {
  char text[32];
  size_t count = 0;
  int exponent = 0;

  explicit Digits(double magnitude) {
    char scientific[64];
    const auto end = std::to_chars(scientific, scientific + sizeof scientific, magnitude,
                                   std::chars_format::scientific);
    const char* at = scientific;
    for (; *at != 'e'; ++at) {
      if (*at != '.') text[count++] = *at;
    }
    at += at[1] == '+' ? 2 : 1;  // from_chars knows no plus
    std::from_chars(at, end.ptr, exponent);
  }
};

// How a format writes a number that is too large or small to write out.
struct FloatStyle {
  int least, most;   // exponents from and below which it is written out
  const char* plus;  // before a positive exponent
  bool two_digits;   // at least, of an exponent
};
constexpr FloatStyle kRepr = {-4, 16, "+", true}, kJson = {-5, 16, "", false};

inline void append_float(std::string& out, double value, const FloatStyle& style) {
  if (std::signbit(value)) out += '-';
  const Digits digits(std::fabs(value));
  const int exponent = digits.exponent, count = static_cast<int>(digits.count);
  if (exponent < style.least || exponent >= style.most) {
    out += digits.text[0];
    if (count > 1) out.append(".").append(digits.text + 1, digits.count - 1);
    out.append("e").append(exponent < 0 ? "-" : style.plus);
    const int power = std::abs(exponent);
    if (style.two_digits && power < 10) out += '0';
    out += std::to_string(power);
  } else if (exponent < 0) {
    out.append("0.")
        .append(static_cast<size_t>(-exponent - 1), '0')
        .append(digits.text, digits.count);
  } else {
    const int whole = exponent + 1;
    out.append(digits.text, static_cast<size_t>(count < whole ? count : whole));
    if (count <= whole) {
      out.append(static_cast<size_t>(whole - count), '0').append(".0");
    } else {
      out.append(".").append(digits.text + whole, static_cast<size_t>(count - whole));
    }
  }
}

// Whether a text can stand between quotes as it is, in both formats.
inline bool is_plain(std::string_view text) {
  for (const char letter : text) {
    if (letter < ' ' || letter > '~' || letter == '"' || letter == '\'' || letter == '\\') {
      return false;
    }
  }
  return true;
}

inline void append_integer(std::string& out, int64_t value) {
  char text[24];
  out.append(text, std::to_chars(text, text + sizeof text, value).ptr);
}

inline void append_sizes(std::string& out, const int64_t* sizes, int count) {
  for (int at = 0; at < count; ++at) {
    if (at) out += ',';
    append_integer(out, sizes[at]);
  }
}

// The largest power of two that divides an address; beyond 512 it says nothing more.
inline int64_t alignment(uint64_t address) {
  const uint64_t power = address & (~address + 1);
  return power && power < 512 ? static_cast<int64_t>(power) : 512;
}

inline bool is_contiguous(const DLTensor& tensor) {
  int64_t expected = 1;
  for (int dim = tensor.ndim - 1; dim >= 0; --dim) {
    if (tensor.shape[dim] != 1 && tensor.strides[dim] != expected) return false;
    expected *= tensor.shape[dim];
  }
  return true;
}

// What both formats write alike.
class TextWriter {
 public:
  explicit TextWriter(std::string& out) : out_(out) {}

  bool integer(int64_t value) {
    append_integer(out_, value);
    return true;
  }
  void begin_list(size_t) { out_ += '['; }
  bool end_list() { return word("]"); }

 protected:
  bool word(const char* word) {
    out_ += word;
    return true;
  }
  bool quoted(std::string_view text, char quote) {
    if (!is_plain(text)) return false;
    out_ += quote;
    out_.append(text) += quote;
    return true;
  }

  std::string& out_;
};

class ConsoleWriter : public TextWriter {
 public:
  using TextWriter::TextWriter;

  bool none() { return word("None"); }
  bool boolean(bool value) { return word(value ? "True" : "False"); }
  bool number(double value) {
    if (std::isnan(value)) return word("nan");
    if (std::isinf(value)) return word(value > 0 ? "inf" : "-inf");
    append_float(out_, value, kRepr);
    return true;
  }
  bool text(std::string_view text) { return quoted(text, '\''); }
  void next_item() { out_ += ", "; }
  bool tensor(const TensorFacts& facts) {
    const DLTensor& tensor = *facts.tensor;
    out_.append(facts.dtype).append("[");
    append_sizes(out_, tensor.shape, tensor.ndim);
    out_ += "] ";
    if (!is_contiguous(tensor)) {
      out_ += "stride(";
      append_sizes(out_, tensor.strides, tensor.ndim);
      out_ += ") ";
    }
    out_.append(facts.device).append(" align");
    return integer(alignment(facts.address()));
  }
};

class JsonWriter : public TextWriter {
 public:
  using TextWriter::TextWriter;

  bool none() { return word("null"); }
  bool boolean(bool value) { return word(value ? "true" : "false"); }
  bool number(double value) {
    if (!std::isfinite(value)) return none();
    append_float(out_, value, kJson);
    return true;
  }
  bool text(std::string_view text) { return quoted(text, '"'); }
  void next_item() { out_ += ','; }
  bool tensor(const TensorFacts& facts) {
    const DLTensor& tensor = *facts.tensor;
    out_.append(R"({"dtype":")").append(facts.dtype).append(R"(","shape":[)");
    append_sizes(out_, tensor.shape, tensor.ndim);
    out_.append(R"(],"device":")").append(facts.device).append(R"(","stride":[)");
    append_sizes(out_, tensor.strides, tensor.ndim);
    out_ += R"(],"align":)";
    integer(alignment(facts.address()));
    return word("}");
  }
};

}  // namespace kernlib::recorder
