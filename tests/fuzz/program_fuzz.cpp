// Any text is a program, a workload and a job, or a ProgramTextError; what is read is written and read again as the
// same, and can be judged.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "kernels/execute/gpu/device_job.hpp"
#include "sim/program/text/program_text.hpp"
#include "sim/program/text/workload_text.hpp"
#include "sim/program/verify.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tidemark::execute;
  const std::string_view read(reinterpret_cast<const char*>(data), size);
  try {
    const Program program = parse_program(read);
    const std::string written = text(program);
    if (text(parse_program(written)) != written) std::abort();
    static_cast<void>(verify(program));
  } catch (const ProgramTextError&) {
  }
  try {
    const Workload workload = parse_workload(read);
    const std::string written = text(workload);
    if (text(parse_workload(written)) != written) std::abort();
    static_cast<void>(verify(workload));
  } catch (const ProgramTextError&) {
  }
  try {
    const std::string written = text(parse_device_job(read));
    if (text(parse_device_job(written)) != written) std::abort();
  } catch (const ProgramTextError&) {
  }
  return 0;
}
