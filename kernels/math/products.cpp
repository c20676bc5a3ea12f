#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/math/blas.hpp"
#include "kernels/math/families.hpp"

namespace tidemark::math {
namespace {

// Matrices of an operand: where they lie, if BLAS can read them there, or else a copy.
template <class Real>
class Matrices {
 public:
  // Of several dimensions, all but the last are rows, unless `batched`.
  Matrices(const Call& c, std::size_t input, bool batched) {
    const View& view = c.in[input].view;
    const Shape& sizes = view.sizes;
    all_ = {nullptr, sizes[sizes.size() - 2], sizes.back(), sizes.back(), false};
    if (!batched) all_.rows = rows_of(sizes).count;
    if (reads_in_place(c.in[input], c.setting.storage)) return;
    copy_ = c.read<Real>(input);
    all_.first = copy_.data();
  }
  [[nodiscard]] Matrix<Real> operator[](std::int64_t batch) const {
    Matrix<Real> one = all_;
    one.first += batch * one.rows * one.columns;
    return one;
  }

 private:
  // A single matrix whose elements are stored as they are computed with, side by side in rows or in columns.
  bool reads_in_place(const Array& array, Storage storage) {
    const View& view = array.view;
    const bool as_computed = storage == Storage::Native ? view.dtype == DType::FP32 && std::is_same_v<Real, float>
                                                        : size_of(view.dtype).count() * spread(storage) == sizeof(Real);
    if (!as_computed || view.sizes.size() != 2 || reinterpret_cast<std::uintptr_t>(array.first) % alignof(Real) != 0)
      return false;
    const std::int64_t down = view.strides[0], across = view.strides[1];
    const bool in_rows = across == 1 && down >= std::max<std::int64_t>(view.sizes[1], 1);
    const bool in_columns = down == 1 && across >= std::max<std::int64_t>(view.sizes[0], 1);
    if (!in_rows && !in_columns) return false;
    all_.first = reinterpret_cast<const Real*>(array.first);
    all_.apart = in_rows ? down : across;
    all_.transposed = !in_rows;
    return true;
  }

  std::vector<Real> copy_;
  Matrix<Real> all_;
};

}  // namespace

// c = scale * a b + bias + added, rounded once, as cuBLAS does with an epilogue. Where all batches share b, those of a
// are rows of one matrix.
template <class Real>
void Products<Real>::matmul(const Call& c) {
  const bool batched = c.sizes_in(1).size() > 2;
  const Matrices<Real> a(c, 0, batched), b(c, 1, batched);
  const Shape& sizes = c.sizes_out(0);
  std::vector<Real> product = c.read<Real>(3, sizes);
  if (c.in[2].there()) {
    const std::vector<Real> bias = c.read<Real>(2, sizes);
    for (std::size_t i = 0; i < product.size(); ++i) product[i] += bias[i];
  }
  const Matrix<Real> one = a[0];
  const std::int64_t columns = sizes.back(), elements = one.rows * columns;
  const std::int64_t batches = elements > 0 ? elements_of(sizes) / elements : 0;
  for (std::int64_t i = 0; i < batches; ++i)
    multiply(c.attributes[0], a[i], b[i], 1, product.data() + i * elements, columns);
  c.write(0, product);
}

template struct Products<float>;
template struct Products<double>;

}  // namespace tidemark::math
