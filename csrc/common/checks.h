// Checks of a binding: each names the argument and both numbers.
#pragma once

#include <tvm/ffi/container/tensor.h>

#include <initializer_list>
#include <string>

#include "kernlib/backend.h"
#include "kernlib/rows.h"
#include "kernlib/scalar.h"

namespace kernlib::check {

namespace ffi = tvm::ffi;

// A piece of a message: words or a number. It owns nothing, so that a check compiles to little.
struct Piece {
  const char* words = nullptr;
  int64_t number = 0;

  Piece(const char* words) : words(words) {}                 // NOLINT - conversions are the point
  Piece(const std::string& words) : words(words.c_str()) {}  // NOLINT - lives as long as the call
  Piece(int64_t number) : number(number) {}                  // NOLINT
};

using Message = std::initializer_list<Piece>;

[[gnu::cold, gnu::noinline]] inline std::string joined(Message pieces) {
  std::string text;
  for (const Piece& piece : pieces) {
    text += piece.words ? piece.words : std::to_string(piece.number);
  }
  return text;
}

[[noreturn, gnu::cold, gnu::noinline]] inline void value_error(Message message) {
  TVM_FFI_THROW(ValueError) << joined(message);
}

[[noreturn, gnu::cold, gnu::noinline]] inline void type_error(Message message) {
  TVM_FFI_THROW(TypeError) << joined(message);
}

[[gnu::cold, gnu::noinline]] inline std::string text(ffi::ShapeView numbers) {
  std::string list;
  for (const int64_t number : numbers) list += (list.empty() ? "" : ", ") + std::to_string(number);
  return "[" + list + "]";
}

[[gnu::cold, gnu::noinline]] inline std::string text(DLDevice device) {
  if (device.device_type == kDLCPU) return "cpu";
  const char* kind = device.device_type == kDLCUDA ? "cuda:" : "another device:";
  return kind + std::to_string(device.device_id);
}

[[gnu::cold, gnu::noinline]] inline std::string text(DLDataType dtype) {
  const char* names[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  if (dtype.code >= sizeof names / sizeof *names) return "a dtype unknown here";
  return names[dtype.code] + (dtype.code == kDLBool ? "" : std::to_string(dtype.bits));
}

// A tensor argument under the name that its caller knows.
struct Arg {
  const char* name;
  ffi::TensorView view;
};

// "x.shape[1]"
[[gnu::cold, gnu::noinline]] inline std::string size_text(const Arg& arg, int dim) {
  return joined({arg.name, ".shape[", dim, "]"});
}

inline void runs_here(const Arg& arg) {
  if (arg.view.device().device_type == backend::device_type()) return;
  value_error({arg.name, " is on ", text(arg.view.device()), ", but this kernel was built for ",
               backend::device_type() == kDLCPU ? "cpu" : "cuda"});
}

inline void same_device(const Arg& arg, const Arg& other) {
  const DLDevice a = arg.view.device(), b = other.view.device();
  if (a.device_type == b.device_type && a.device_id == b.device_id) return;
  value_error({arg.name, " is on ", text(a), ", but ", other.name, " is on ", text(b)});
}

// A pointer that is not a multiple of its element is undefined behaviour in C++, a fault on CUDA.
inline void element_aligned(const Arg& arg) {
  const int64_t element = arg.view.dtype().bits / 8;
  const int64_t rest = reinterpret_cast<uintptr_t>(arg.view.data_ptr()) % element;
  if (rest == 0) return;
  value_error(
      {arg.name, " starts ", rest, " bytes past a multiple of its element size, ", element});
}

inline DType float_dtype(const Arg& arg) {
  const DLDataType dtype = arg.view.dtype();
  if (dtype.lanes == 1 && dtype.code == kDLFloat && dtype.bits == 16) return DType::kFloat16;
  if (dtype.lanes == 1 && dtype.code == kDLBfloat && dtype.bits == 16) return DType::kBFloat16;
  if (dtype.lanes == 1 && dtype.code == kDLFloat && dtype.bits == 32) return DType::kFloat32;
  type_error({arg.name, " is ", text(dtype), ", but float16, bfloat16 or float32 is needed"});
}

inline bool equal(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

inline void dtype_is(const Arg& arg, DLDataType wanted) {
  if (equal(arg.view.dtype(), wanted)) return;
  type_error({arg.name, " is ", text(arg.view.dtype()), ", but ", text(wanted), " is needed"});
}

inline void same_dtype(const Arg& arg, const Arg& other) {
  if (equal(arg.view.dtype(), other.view.dtype())) return;
  type_error({arg.name, " is ", text(arg.view.dtype()), ", but ", other.name, " is ",
              text(other.view.dtype())});
}

// `layout` names the dimensions: "[num_pages, 2, num_kv_heads, page_size, head_dim]".
inline void dims(const Arg& arg, int count, const char* layout) {
  if (arg.view.ndim() == count) return;
  value_error({arg.name, " has ", arg.view.ndim(), " dimensions, but ", layout, " has ", count});
}

// `what` says where `wanted` comes from: "x.shape[1]", "num_qo_heads".
inline void size_is(const Arg& arg, int dim, int64_t wanted, const char* what) {
  if (arg.view.size(dim) == wanted) return;
  value_error({size_text(arg, dim), " = ", arg.view.size(dim), ", but ", what, " = ", wanted});
}

inline void same_size(const Arg& arg, int dim, const Arg& other, int other_dim) {
  if (arg.view.size(dim) == other.view.size(other_dim)) return;
  value_error({size_text(arg, dim), " = ", arg.view.size(dim), ", but ",
               size_text(other, other_dim), " = ", other.view.size(other_dim)});
}

inline void same_shape(const Arg& arg, const Arg& other) {
  dims(arg, other.view.ndim(), other.name);
  for (int dim = 0; dim < arg.view.ndim(); ++dim) same_size(arg, dim, other, dim);
}

// Elements of the last dimension must lie side by side.
inline void dense_last(const Arg& arg) {
  const int last = arg.view.ndim() - 1;
  if (arg.view.size(last) <= 1 || arg.view.stride(last) == 1) return;
  value_error({arg.name, " has stride ", arg.view.stride(last),
               " in its last dimension, but only 1 is supported"});
}

// No two elements of a tensor that is written may share memory.
inline void writable(const Arg& arg) {
  if (arg.view.numel() == 0) return;
  for (int dim = 0; dim < arg.view.ndim(); ++dim) {
    if (arg.view.size(dim) <= 1 || arg.view.stride(dim) != 0) continue;
    value_error({arg.name, " has stride 0 in dimension ", dim, " of size ", arg.view.size(dim),
                 ", but it is written to and needs memory for each element"});
  }
}

// Another operand of the same kernel: same device, same dtype.
inline void like(const Arg& arg, const Arg& other) {
  same_device(arg, other);
  same_dtype(arg, other);
  element_aligned(arg);
}

// A one-dimensional int32 list without gaps.
inline const int32_t* indices(const Arg& arg, const Arg& other) {
  same_device(arg, other);
  dtype_is(arg, DLDataType{kDLInt, 32, 1});
  dims(arg, 1, "a list");
  dense_last(arg);
  element_aligned(arg);
  return static_cast<const int32_t*>(arg.view.data_ptr());
}

// Folds the leading dimensions into rows of two strides; a dimension of size 1 has none.
inline Rows rows(const Arg& arg) {
  dense_last(arg);
  Rows rows{1, 1, 0, 0};
  int64_t outer = 1;
  for (int dim = arg.view.ndim() - 2; dim >= 0; --dim) {
    const int64_t size = arg.view.size(dim), stride = arg.view.stride(dim);
    if (size == 0) return Rows{0, 1, 0, 0};
    rows.count *= size;
    if (size == 1) continue;
    if (rows.inner == 1) {
      rows.inner = size, rows.inner_stride = stride;
    } else if (outer == 1 && stride == rows.inner * rows.inner_stride) {
      rows.inner *= size;
    } else if (outer == 1) {
      outer = size, rows.outer_stride = stride;
    } else if (stride == outer * rows.outer_stride) {
      outer *= size;
    } else {
      value_error({arg.name, " has shape ", text(arg.view.shape()), " and strides ",
                   text(arg.view.strides()), ", but rows of at most two strides are supported"});
    }
  }
  return rows;
}

}  // namespace kernlib::check

#define KERNLIB_ARG(tensor) \
  kernlib::check::Arg { #tensor, tensor }
