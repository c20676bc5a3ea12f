#include "parallel/torch/save_on_cpu.hpp"

#include <memory>
#include <string>
#include <utility>

#include "parallel/torch/ops/aten.hpp"

namespace tidemark::parallel::torch {
namespace {

class OnCpu final : public PackedTensor {
 public:
  explicit OnCpu(Tensor packed, MemorySpace space) : packed_(std::move(packed)), space_(space) {}

  Tensor unpack(Session& s) override {
    Tensor made = s.empty_strided(packed_.sizes, packed_.strides, packed_.dtype, "from_host", Category::OffloadStaging);
    s.copy(packed_, made);
    if (space_ == MemorySpace::Pageable) s.process.synchronize(s.process.record(s.stream()));
    return made;
  }

 private:
  Tensor packed_;
  MemorySpace space_;
};

// Pinned memory is asked for row by row; Tensor.cpu keeps strides, where they leave nothing out.
bool keeps_strides(const Tensor& tensor, MemorySpace space) { return space == MemorySpace::Pageable && tensor.dense(); }

}  // namespace

PackHook save_on_cpu(Session& session, MemorySpace space) {
  return [&s = session, space](const Tensor& tensor) -> std::unique_ptr<PackedTensor> {
    const NoGrad no_grad(s);
    const std::string& its = s.process.text(s.process.allocation(tensor.buffer()).label);
    const LabelId label = s.process.label(its + ".saved_on_cpu");
    const Tensor from = keeps_strides(tensor, space) ? tensor : contiguous(s, tensor);
    Tensor packed;
    {
      const OnHost host(s, space);
      packed = s.empty(from.sizes, from.dtype, label, Category::SavedActivations);
      packed.strides = from.strides;
    }
    s.copy(from, packed);
    if (space == MemorySpace::Pageable) s.process.synchronize(s.process.record(s.stream()));
    return std::make_unique<OnCpu>(std::move(packed), space);
  };
}

}  // namespace tidemark::parallel::torch
