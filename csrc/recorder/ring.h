// The ring of recorded calls in a file mapping; the layout is that of kernlib/ring/_format.py.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string_view>

namespace kernlib::recorder {

enum class Kind : uint8_t { kCall = 1, kReturn = 2, kRaise = 3 };

// The head of a record. No padding: it is written as it lies in memory, little-endian.
struct RecordHead {
  char magic[4];
  uint32_t length;
  uint64_t position, ordinal, time, call, parent, nanoseconds, stream;
  uint32_t thread;
  Kind kind;
  uint8_t flags;
  uint16_t names_bytes;
  uint32_t values_bytes, checksum;
};
static_assert(sizeof(RecordHead) == 80);
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

constexpr char kMagic[4] = {'\xc5', 'K', 'R', '\x01'};
constexpr size_t kPageBytes = 4096, kHeadAt = 64, kAlignment = 8, kLargestRecord = 1 << 16;
constexpr uint8_t kHasStream = 1, kCapturing = 2;

// Adler-32 (RFC 1950) of some bytes after those that gave `sum`. Blocks of 16 let the compiler use
// vectors; 5552 bytes are the most whose sums fit 32 bits.
inline uint32_t adler32(uint32_t sum, const uint8_t* data, size_t count) {
  constexpr uint32_t kModulus = 65521;
  constexpr size_t kBlock = 16, kChunk = 5552;
  uint32_t a = sum & 0xffff, b = sum >> 16;
  while (count) {
    size_t chunk = count < kChunk ? count : kChunk;
    count -= chunk;
    for (; chunk >= kBlock; chunk -= kBlock, data += kBlock) {
      uint32_t plain = 0, weighted = 0;
      for (uint32_t at = 0; at < kBlock; ++at) {
        plain += data[at];
        weighted += (kBlock - at) * data[at];
      }
      b += kBlock * a + weighted;
      a += plain;
    }
    for (; chunk; --chunk) b += a += *data++;
    a %= kModulus;
    b %= kModulus;
  }
  return b << 16 | a;
}

// A record under construction: room for the head, then names and values as they are added.
class RecordBuffer {
 public:
  void clear() { size_ = sizeof(RecordHead); }
  size_t size() const { return size_; }
  bool full() const { return full_; }

  void begin(std::string_view names) {
    size_ = sizeof(RecordHead);
    full_ = false;
    append(names.data(), names.size());
  }

  void append(const void* bytes, size_t count) {
    if (count > kLargestRecord - size_) {
      full_ = true;
      return;
    }
    std::memcpy(bytes_ + size_, bytes, count);
    size_ += count;
  }

  template <typename Plain>
  void put(Plain value) {
    append(&value, sizeof value);
  }

  // Makes the bytes a whole record.
  const uint8_t* seal(RecordHead head) {
    std::memset(bytes_ + size_, 0, head.length - size_);
    std::memcpy(head.magic, kMagic, sizeof kMagic);
    constexpr size_t kSummed = offsetof(RecordHead, checksum);
    uint32_t sum = adler32(1, reinterpret_cast<const uint8_t*>(&head), kSummed);
    head.checksum = adler32(sum, bytes_ + sizeof head, head.length - sizeof head);
    std::memcpy(bytes_, &head, sizeof head);
    return bytes_;
  }

 private:
  size_t size_ = sizeof(RecordHead);
  bool full_ = false;
  alignas(8) uint8_t bytes_[kLargestRecord + kAlignment];
};

// A mapped ring. Records of several threads follow each other; another process has its own file.
class Ring {
 public:
  Ring(uint8_t* file, size_t bytes) : file_(file), capacity_(bytes - kPageBytes) {}
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() { munmap(file_, kPageBytes + capacity_); }

  void append(RecordBuffer& buffer, RecordHead head) {
    head.length = static_cast<uint32_t>((buffer.size() + kAlignment - 1) & ~(kAlignment - 1));
    const std::lock_guard<std::mutex> guard(mutex_);
    reserve(head);
    const uint8_t* bytes = buffer.seal(head);
    uint8_t* place = file_ + kPageBytes + head.position % capacity_;
    // A reader, or a kill, between any two of these finds no record here or a whole one.
    std::memset(place, 0, sizeof kMagic);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    std::memcpy(place + sizeof kMagic, bytes + sizeof kMagic, head.length - sizeof kMagic);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    std::memcpy(place, kMagic, sizeof kMagic);
  }

 private:
  void reserve(RecordHead& head) {
    uint64_t next[2];  // position and ordinal
    std::memcpy(next, file_ + kHeadAt, sizeof next);
    const uint64_t left = capacity_ - next[0] % capacity_;
    if (left < head.length) next[0] += left;
    head.position = next[0];
    head.ordinal = next[1];
    next[0] += head.length;
    next[1] += 1;
    std::memcpy(file_ + kHeadAt, next, sizeof next);
  }

  std::mutex mutex_;
  uint8_t* file_;
  size_t capacity_;
};

}  // namespace kernlib::recorder
