// CPU instantiations of the planted faults.

#include "kernlib/selftest_cpu.h"

#include "kernlib/backend.h"

namespace kernlib::selftest {
namespace {

template <typename Task>
int run(const Task& task) {
  each(task);
  return kSuccess;
}

}  // namespace

int launch(const ReadOutOfBounds& task, void*) { return run(task); }
int launch(const WriteOutOfBounds& task, void*) { return run(task); }
int launch(const OffByOne& task, void*) { return run(task); }
int launch(const Misalignment& task, void*) { return run(task); }
int launch(const Assertion& task, void*) { return run(task); }
int launch(const Hang& task, void*) { return run(task); }
int launch(const NotANumber& task, void*) { return run(task); }
int launch(const Int32Overflow& task, void*) { return run(task); }
int launch(const StaleWorkspace& task, void*) { return run(task); }
int launch(const AddBias& task, void*) { return run(task); }

int launch(const Race& task, void*) {
  race(task);
  return kSuccess;
}

}  // namespace kernlib::selftest
