// Arguments of a call, as they come through the FFI, handed to a writer of one of the formats.
#pragma once

#include <tvm/ffi/c_api.h>
#include <tvm/ffi/container/array.h>

#include <cstring>
#include <string_view>

namespace kernlib::recorder {

constexpr int kDeepest = 4;
constexpr size_t kMostItems = 16, kLongestText = 120;

// The name torch has for a dtype; empty if it has none, or none that is known here.
inline std::string_view dtype_name(DLDataType dtype) {
  struct Row {
    uint8_t code, bits;
    uint16_t lanes;
    std::string_view name;
  };
  static constexpr Row kRows[] = {
      {kDLBfloat, 16, 1, "bfloat16"},
      {kDLFloat, 16, 1, "float16"},
      {kDLFloat, 32, 1, "float32"},
      {kDLInt, 32, 1, "int32"},
      {kDLInt, 64, 1, "int64"},
      {kDLFloat8_e4m3fn, 8, 1, "float8_e4m3fn"},
      {kDLFloat8_e5m2, 8, 1, "float8_e5m2"},
      {kDLFloat8_e4m3fnuz, 8, 1, "float8_e4m3fnuz"},
      {kDLFloat8_e5m2fnuz, 8, 1, "float8_e5m2fnuz"},
      {kDLFloat8_e8m0fnu, 8, 1, "float8_e8m0fnu"},
      {kDLFloat4_e2m1fn, 4, 2, "float4_e2m1fn_x2"},
      {kDLFloat, 64, 1, "float64"},
      {kDLBool, 8, 1, "bool"},
      {kDLUInt, 8, 1, "uint8"},
      {kDLInt, 8, 1, "int8"},
      {kDLInt, 16, 1, "int16"},
      {kDLUInt, 16, 1, "uint16"},
      {kDLUInt, 32, 1, "uint32"},
      {kDLUInt, 64, 1, "uint64"},
      {kDLComplex, 32, 1, "complex32"},
      {kDLComplex, 64, 1, "complex64"},
      {kDLComplex, 128, 1, "complex128"},
  };
  for (const Row& row : kRows) {
    if (row.code == dtype.code && row.bits == dtype.bits && row.lanes == dtype.lanes) {
      return row.name;
    }
  }
  return {};
}

// "cpu" or "cuda:1" in a buffer of its own; empty for any other device.
class DeviceName {
 public:
  explicit DeviceName(DLDevice device) {
    if (device.device_type == kDLCPU) {
      size_ = 3;
      std::memcpy(text_, "cpu", 3);
    } else if (device.device_type == kDLCUDA && 0 <= device.device_id && device.device_id < 100) {
      std::memcpy(text_, "cuda:", 5);
      size_ = 5;
      if (device.device_id >= 10) text_[size_++] = static_cast<char>('0' + device.device_id / 10);
      text_[size_++] = static_cast<char>('0' + device.device_id % 10);
    }
  }
  std::string_view view() const { return {text_, size_}; }

 private:
  char text_[8];
  size_t size_ = 0;
};

// A tensor whose names are known.
struct TensorFacts {
  const DLTensor* tensor;
  std::string_view dtype, device;

  uint64_t address() const {
    return reinterpret_cast<uint64_t>(tensor->data) + tensor->byte_offset;
  }
};

inline const DLTensor* tensor_of(const TVMFFIAny& value) {
  if (value.type_index == kTVMFFIDLTensorPtr) return static_cast<const DLTensor*>(value.v_ptr);
  if (value.type_index == kTVMFFITensor) return TVMFFITensorGetDLTensorPtr(value.v_obj);
  return nullptr;
}

// Hands a value to `out`; false for what has no plain form, which Python describes.
template <typename Writer>
bool write_value(const TVMFFIAny& value, Writer& out, int depth = 0) {
  switch (value.type_index) {
    case kTVMFFINone:
      return out.none();
    case kTVMFFIBool:
      return out.boolean(value.v_int64 != 0);
    case kTVMFFIInt:
      return out.integer(value.v_int64);
    case kTVMFFIFloat:
      return out.number(value.v_float64);
    case kTVMFFIDataType: {
      const std::string_view name = dtype_name(value.v_dtype);
      return !name.empty() && out.text(name);
    }
    case kTVMFFISmallStr:
      return out.text({value.v_bytes, value.small_str_len});
    case kTVMFFIRawStr: {
      const std::string_view text = value.v_c_str;
      return text.size() <= kLongestText && out.text(text);
    }
    case kTVMFFIStr: {
      const TVMFFIByteArray* bytes = TVMFFIBytesGetByteArrayPtr(value.v_obj);
      return bytes->size <= kLongestText && out.text({bytes->data, bytes->size});
    }
    case kTVMFFITensor:
    case kTVMFFIDLTensorPtr: {
      const DLTensor* tensor = tensor_of(value);
      const DeviceName device(tensor->device);
      const TensorFacts facts{tensor, dtype_name(tensor->dtype), device.view()};
      if (facts.dtype.empty() || facts.device.empty() || !tensor->strides) return false;
      return out.tensor(facts);
    }
    case kTVMFFIArray: {
      const auto* items = reinterpret_cast<const tvm::ffi::ArrayObj*>(value.v_obj);
      if (depth >= kDeepest || items->size() > kMostItems) return false;
      out.begin_list(items->size());
      bool first = true;
      for (const tvm::ffi::Any& item : *items) {
        if (!first) out.next_item();
        first = false;
        if (!write_value(reinterpret_cast<const TVMFFIAny&>(item), out, depth + 1)) return false;
      }
      return out.end_list();
    }
    default:
      return false;
  }
}

}  // namespace kernlib::recorder
