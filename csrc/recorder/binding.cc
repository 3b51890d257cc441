// What Python calls to record: a ring is mapped once, an api registered once, then two calls a
// call.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "recorder/binary.h"
#include "recorder/lines.h"

namespace kernlib::recorder {
namespace {

namespace ffi = tvm::ffi;

// Things that Python holds by number. There is no lock that a fork could leave closed, and none is
// needed: Python removes nothing that a call of its own may still use.
template <typename Item, size_t kMost>
class Table {
 public:
  // Returns the item's number, or -1 for one too many, which is deleted.
  int64_t add(Item* item) {
    const size_t number = count_.fetch_add(1, std::memory_order_relaxed);
    if (number >= kMost) {
      count_.store(kMost, std::memory_order_relaxed);
      delete item;
      return -1;
    }
    items_[number].store(item, std::memory_order_release);
    return static_cast<int64_t>(number);
  }

  Item& at(int64_t number) const {
    Item* item = static_cast<uint64_t>(number) < kMost
                     ? items_[number].load(std::memory_order_acquire)
                     : nullptr;
    if (!item) TVM_FFI_THROW(ValueError) << "number " << number << " is not in use";
    return *item;
  }

  // Takes an item out; its number is not handed out again.
  void remove(int64_t number) {
    Item* item = &at(number);
    items_[number].store(nullptr, std::memory_order_release);
    delete item;
  }

 private:
  std::atomic<size_t> count_{0};
  std::atomic<Item*> items_[kMost] = {};
};

// An api, and the names of the values it is called with or returns.
struct Site {
  std::string_view api;
  std::string call_names, return_names;  // joined by NUL, as they stand in a record
  std::vector<std::string> call_list, return_list;
  bool plain;  // whether all of them can stand in a line as they are

  Site(std::string call, std::string returned)
      : call_names(std::move(call)), return_names(std::move(returned)) {
    api = std::string_view(call_names).substr(0, call_names.find('\0'));
    plain = is_plain(api);
    split(call_names, call_list);
    split(return_names, return_list);
  }

 private:
  void split(std::string_view names, std::vector<std::string>& list) {
    for (size_t end = names.find('\0'); end != names.npos; end = names.find('\0')) {
      names.remove_prefix(end + 1);
      list.emplace_back(names.substr(0, names.find('\0')));
      plain = plain && is_plain(list.back());
    }
  }
};

Table<Ring, 4096> rings;
Table<Lines, 4096> files;
Table<Site, 65536> sites;
std::atomic<uint32_t> generation{0};

uint64_t nanoseconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(now.tv_nsec);
}

// The number of this thread. Asked for again after a fork, in which the thread becomes another.
uint32_t thread_number() {
  thread_local uint32_t number = 0, known = 0;
  const uint32_t now = generation.load(std::memory_order_relaxed);
  if (!number || known != now) {
    number = static_cast<uint32_t>(syscall(SYS_gettid));
    known = now;
  }
  return number;
}

RecordBuffer& buffer() {
  thread_local RecordBuffer buffer;
  return buffer;
}

int64_t map_ring(const ffi::String& path) {
  generation.fetch_add(1, std::memory_order_relaxed);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat facts;
  void* bytes = MAP_FAILED;
  if (file >= 0 && fstat(file, &facts) == 0 && facts.st_size > static_cast<off_t>(kPageBytes)) {
    bytes = mmap(nullptr, static_cast<size_t>(facts.st_size), PROT_READ | PROT_WRITE, MAP_SHARED,
                 file, 0);
  }
  const int problem = errno;
  if (file >= 0) close(file);
  if (bytes == MAP_FAILED) {
    TVM_FFI_THROW(RuntimeError) << path << " cannot be mapped: " << std::strerror(problem);
  }
  const int64_t number =
      rings.add(new Ring(static_cast<uint8_t*>(bytes), static_cast<size_t>(facts.st_size)));
  if (number < 0) TVM_FFI_THROW(RuntimeError) << path << ": this process has mapped all it can";
  return number;
}

void unmap_ring(int64_t number) { rings.remove(number); }

int64_t add_site(const ffi::Bytes& call_names, const ffi::Bytes& return_names) {
  return sites.add(new Site(call_names, return_names));
}

int64_t add_lines(int64_t file, bool json) {
  return files.add(new Lines{static_cast<int>(file), json});
}

// The stream of the first CUDA tensor, as the caller's framework has set it.
void set_stream(const TVMFFIAny* values, int32_t count, RecordHead& head) {
  for (int32_t at = 0; at < count; ++at) {
    const DLTensor* tensor = tensor_of(values[at]);
    if (!tensor || tensor->device.device_type != kDLCUDA) continue;
    void* stream = TVMFFIEnvGetStream(tensor->device.device_type, tensor->device.device_id);
    head.stream = reinterpret_cast<uint64_t>(stream);
    head.flags |= kHasStream;
    return;
  }
}

bool record(Ring& ring, std::string_view names, RecordHead head, const TVMFFIAny* values,
            int32_t count) {
  RecordBuffer& bytes = buffer();
  bytes.begin(names);
  BinaryWriter writer(bytes);
  for (int32_t at = 0; at < count; ++at) {
    if (!write_value(values[at], writer)) return false;
  }
  if (bytes.full() || names.size() > UINT16_MAX) return false;
  head.names_bytes = static_cast<uint16_t>(names.size());
  head.values_bytes = static_cast<uint32_t>(bytes.size() - sizeof head - names.size());
  head.thread = thread_number();
  head.time = nanoseconds(CLOCK_REALTIME);
  ring.append(bytes, head);
  return true;
}

// started(ring, site, call, parent, capturing, values...): the moment, for `ended`; 0 if a value
// has no plain form and nothing was written.
int64_t started(const TVMFFIAny* args, int32_t count) {
  RecordHead head = {};
  head.kind = Kind::kCall;
  head.call = static_cast<uint64_t>(args[2].v_int64);
  head.parent = static_cast<uint64_t>(args[3].v_int64);
  if (args[4].v_int64) head.flags |= kCapturing;
  set_stream(args + 5, count - 5, head);
  const Site& site = sites.at(args[1].v_int64);
  if (!record(rings.at(args[0].v_int64), site.call_names, head, args + 5, count - 5)) return 0;
  return static_cast<int64_t>(nanoseconds(CLOCK_MONOTONIC));
}

// ended(ring, site, call, moment of the start[, result]): whether it was written.
int64_t ended(const TVMFFIAny* args, int32_t count) {
  RecordHead head = {};
  head.kind = Kind::kReturn;
  head.call = static_cast<uint64_t>(args[2].v_int64);
  head.nanoseconds = nanoseconds(CLOCK_MONOTONIC) - static_cast<uint64_t>(args[3].v_int64);
  const Site& site = sites.at(args[1].v_int64);
  set_stream(args + 4, count - 4, head);
  return record(rings.at(args[0].v_int64), site.return_names, head, args + 4, count - 4);
}

// Appends a record that Python has encoded: kind, flags, call, parent, nanoseconds, stream, names,
// values.
void append(int64_t ring, const ffi::Array<int64_t>& fields, const ffi::Bytes& names,
            const ffi::Bytes& values) {
  RecordBuffer& bytes = buffer();
  bytes.begin({names.data(), names.size()});
  bytes.append(values.data(), values.size());
  if (bytes.full() || fields.size() != 6 || names.size() > UINT16_MAX) {
    TVM_FFI_THROW(ValueError) << "a record of " << names.size() << " bytes of names, "
                              << values.size() << " of values and " << fields.size()
                              << " fields; 65535, 65536 in all and 6 are the most";
  }
  RecordHead head = {};
  head.kind = static_cast<Kind>(fields[0]);
  head.flags = static_cast<uint8_t>(fields[1]);
  head.call = static_cast<uint64_t>(fields[2]);
  head.parent = static_cast<uint64_t>(fields[3]);
  head.nanoseconds = static_cast<uint64_t>(fields[4]);
  head.stream = static_cast<uint64_t>(fields[5]);
  head.names_bytes = static_cast<uint16_t>(names.size());
  head.values_bytes = static_cast<uint32_t>(values.size());
  head.thread = thread_number();
  head.time = nanoseconds(CLOCK_REALTIME);
  rings.at(ring).append(bytes, head);
}

bool line(const Lines& lines, const LineFacts& facts, const std::vector<std::string>& names,
          const TVMFFIAny* values) {
  thread_local std::string text;
  text.clear();
  const uint64_t now = nanoseconds(CLOCK_REALTIME);
  const auto append = lines.json ? append_json : append_console;
  return append(text, facts, now, names, values) && write_line(lines.file, text);
}

bool fits(const Site& site, const std::vector<std::string>& names, int32_t count) {
  return site.plain && names.size() == static_cast<size_t>(count);
}

// line_started(lines, site, call, parent, capturing, values...): as `started`.
int64_t line_started(const TVMFFIAny* args, int32_t count) {
  const Site& site = sites.at(args[1].v_int64);
  LineFacts facts;
  facts.event = "call";
  facts.api = site.api;
  facts.call = args[2].v_int64;
  facts.parent = args[3].v_int64;
  facts.capturing = args[4].v_int64 != 0;
  facts.with_values = !site.return_list.empty();
  if (!fits(site, site.call_list, count - 5)) return 0;
  if (!line(files.at(args[0].v_int64), facts, site.call_list, args + 5)) return 0;
  return static_cast<int64_t>(nanoseconds(CLOCK_MONOTONIC));
}

// line_ended(lines, site, call, moment of the start[, result]): as `ended`.
int64_t line_ended(const TVMFFIAny* args, int32_t count) {
  const Site& site = sites.at(args[1].v_int64);
  LineFacts facts;
  facts.event = "return";
  facts.api = site.api;
  facts.call = args[2].v_int64;
  facts.with_values = true;
  facts.nanoseconds = static_cast<int64_t>(nanoseconds(CLOCK_MONOTONIC)) - args[3].v_int64;
  if (!fits(site, site.return_list, count - 4)) return 0;
  return line(files.at(args[0].v_int64), facts, site.return_list, args + 4);
}

int checked(const TVMFFIAny* args, int32_t count, int32_t least, TVMFFIAny* result,
            int64_t (*function)(const TVMFFIAny*, int32_t)) {
  TVM_FFI_SAFE_CALL_BEGIN();
  if (count < least) {
    TVM_FFI_THROW(TypeError) << count << " arguments; " << least << " are the least";
  }
  *reinterpret_cast<ffi::Any*>(result) = function(args, count);
  TVM_FFI_SAFE_CALL_END();
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(map_ring, map_ring);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(unmap_ring, unmap_ring);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(add_site, add_site);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(add_lines, add_lines);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(append, append);

}  // namespace kernlib::recorder

// Functions of any number of arguments, which the typed exports do not know.
#define KERNLIB_EXPORT_PACKED(function, least)                                                  \
  extern "C" TVM_FFI_DLL_EXPORT int __tvm_ffi_##function(void*, const TVMFFIAny* args,          \
                                                         int32_t count, TVMFFIAny* result) {    \
    return kernlib::recorder::checked(args, count, least, result, kernlib::recorder::function); \
  }

KERNLIB_EXPORT_PACKED(started, 5)
KERNLIB_EXPORT_PACKED(ended, 4)
KERNLIB_EXPORT_PACKED(line_started, 5)
KERNLIB_EXPORT_PACKED(line_ended, 4)
