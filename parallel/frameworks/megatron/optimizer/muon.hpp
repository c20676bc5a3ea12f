#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/frameworks/megatron/worker.hpp"

namespace tidemark::parallel::megatron {

/// core/optimizer/emerging_optimizers.py TensorParallelMuon, over NVIDIA's Emerging-Optimizers: the momentum of each
/// matrix, made orthogonal by a Newton-Schulz iteration, is its update.
class Muon {
 public:
  struct Matrix {
    const Weight* weight = nullptr;
    Tensor value;     ///< fp32, of the weight's shape
    Tensor momentum;  ///< made in the first step
  };
  Muon(Worker& worker, std::vector<Matrix> matrices) : w_(worker), matrices_(std::move(matrices)) {}

  /// Gradients in the order of the matrices, of whatever shape.
  void step(const std::vector<Tensor>& gradients);

 private:
  [[nodiscard]] Tensor orthogonal(const Matrix& matrix, const Tensor& momentum);
  [[nodiscard]] Tensor orthogonal_part(const Matrix& matrix, const Tensor& x);
  [[nodiscard]] Tensor iterated(const Matrix& matrix, const Tensor& x);
  [[nodiscard]] Tensor iteration(const Matrix& matrix, const Tensor& x, std::int64_t step);
  [[nodiscard]] Tensor normalized(const Matrix& matrix, const Tensor& x);
  [[nodiscard]] Tensor scaled(const Matrix& matrix, const Tensor& x, double factor);
  [[nodiscard]] Tensor temporary(const Matrix& matrix, std::string_view what, Shape shape, DType dtype) const;
  [[nodiscard]] LabelId label(const Matrix& matrix, std::string_view what) const;
  [[nodiscard]] const MuonBehavior& behavior() const { return *w_.runtime.optimizer.muon; }

  Worker& w_;
  std::vector<Matrix> matrices_;
};

}  // namespace tidemark::parallel::megatron
