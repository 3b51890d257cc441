// Values as they stand in a ring; the tags are those of kernlib/ring/_format.py.
#pragma once

#include <string_view>

#include "recorder/ring.h"
#include "recorder/values.h"

namespace kernlib::recorder {

class BinaryWriter {
 public:
  explicit BinaryWriter(RecordBuffer& buffer) : buffer_(buffer) {}

  bool none() { return tag(Tag::kNone); }
  bool boolean(bool value) { return tag(value ? Tag::kTrue : Tag::kFalse); }

  bool integer(int64_t value) {
    tag(Tag::kInt);
    buffer_.put(value);
    return true;
  }

  bool number(double value) {
    tag(Tag::kFloat);
    buffer_.put(value);
    return true;
  }

  bool text(std::string_view text) {
    tag(Tag::kText);
    buffer_.put(static_cast<uint32_t>(text.size()));
    buffer_.append(text.data(), text.size());
    return true;
  }

  bool begin_list(size_t count) {
    tag(Tag::kList);
    buffer_.put(static_cast<uint32_t>(count));
    return true;
  }
  void next_item() {}
  bool end_list() { return true; }

  bool tensor(const TensorFacts& facts) {
    const DLTensor& tensor = *facts.tensor;
    tag(Tag::kTensor);
    buffer_.put(facts.address());
    buffer_.put(static_cast<uint8_t>(tensor.ndim));
    buffer_.put(static_cast<uint8_t>(facts.dtype.size()));
    buffer_.put(static_cast<uint8_t>(facts.device.size()));
    buffer_.append(facts.dtype.data(), facts.dtype.size());
    buffer_.append(facts.device.data(), facts.device.size());
    const size_t bytes = sizeof(int64_t) * static_cast<size_t>(tensor.ndim);
    buffer_.append(tensor.shape, bytes);
    buffer_.append(tensor.strides, bytes);
    return true;
  }

 private:
  enum class Tag : uint8_t {
    kNone = 0,
    kFalse = 1,
    kTrue = 2,
    kInt = 3,
    kFloat = 4,
    kText = 5,
    kList = 7,
    kTensor = 8,
  };

  bool tag(Tag tag) {
    buffer_.put(tag);
    return true;
  }

  RecordBuffer& buffer_;
};

}  // namespace kernlib::recorder
