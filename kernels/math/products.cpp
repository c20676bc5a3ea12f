#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/math/engine/engine.hpp"
#include "kernels/math/families.hpp"

namespace tidemark::math {
namespace {

// Matrices of an operand: where they lie, if BLAS can read them there, or else a copy.
template <class Call>
class Matrices {
 public:
  using Real = typename Call::Real;

  // Of several dimensions, all but the last are rows, unless `batched`.
  Matrices(const Call& c, std::size_t input, bool batched) {
    const Shape& sizes = c.sizes_in(input);
    all_ = {nullptr, sizes[sizes.size() - 2], sizes.back(), sizes.back(), false};
    if (!batched) all_.rows = rows_of(sizes).count;
    if (!reads_in_place(c.in[input], c.setting.storage)) all_.first = c.read(input).first;
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
    constexpr DType native = std::is_same_v<Real, float> ? DType::FP32 : DType::FP64;
    const bool as_computed = storage == Storage::Native ? view.dtype == native
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

  Matrix<Real> all_;
};

}  // namespace

// c = scale * a b + bias + added, rounded once, as cuBLAS does with an epilogue. Where all batches share b, those of a
// are rows of one matrix.
template <class Call>
void Products<Call>::matmul(const Call& c) {
  const bool batched = c.sizes_in(1).size() > 2;
  const Matrices<Call> a(c, 0, batched), b(c, 1, batched);
  const Shape& sizes = c.sizes_out(0);
  const Values<Real> product = c.read(3, sizes);
  if (c.in[2].there()) {
    const Values<Real> bias = c.read(2, sizes);
    c.each(product.count, [=] TIDEMARK_EVERYWHERE(std::int64_t i) { product[i] += bias[i]; });
  }
  const std::int64_t columns = sizes.back(), elements = a[0].rows * columns;
  const std::int64_t batches = elements > 0 ? product.count / elements : 0;
  for (std::int64_t i = 0; i < batches; ++i)
    c.engine.multiply(c.attributes[0], a[i], b[i], 1, &product[i * elements], columns);
  c.write(0, product);
}

template struct Products<FloatCall>;
template struct Products<DoubleCall>;

}  // namespace tidemark::math
