#include "scenarios/calibrate/small_programs.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "sim/program/program_builder.hpp"

namespace tidemark::scenarios {
namespace {

class Writer {
 public:
  BufferId allocate(Bytes size, MemorySpace space = MemorySpace::Device) {
    return builder.alloc(size, Category::Temporaries, builder.label("measured"), ProgramBuilder::compute, space);
  }
  /// A tensor that is there all the time, with numbers in it.
  ViewedOperand held(DType dtype, const Shape& sizes) {
    const ViewedOperand made = fresh(dtype, sizes);
    builder.launch(Operation::Initialize, {}, {made});
    return made;
  }
  ViewedOperand fresh(DType dtype, const Shape& sizes) {
    const ViewId view = builder.view(dtype, sizes, contiguous_strides(sizes));
    return {Operand{allocate(builder.program().views[view.index()].extent())}, view};
  }
  void free(const ViewedOperand& operand) { builder.push(Free{operand.operand.buffer}); }

  /// As a job is where one of its kernels has just written `written`: the rest of the core's own cache has what others
  /// used before.
  void after_others(const ViewedOperand& written) {
    for (const ViewedOperand& its : {elsewhere_, written}) builder.launch({Operation::Fill, {0.01}}, {}, {its});
  }
  /// The ops that `work` writes are timed, together.
  template <class Work>
  void timed(Work&& work) {
    const std::size_t begin = builder.program().ops.size();
    work();
    times_.push_back({begin, builder.program().ops.size()});
  }

  SmallProgram finish() && { return {std::move(builder).finish(), std::move(times_)}; }

  ProgramBuilder builder;

 private:
  // More than the caches of one core; cores share larger ones, in which a job's operands may well be.
  static constexpr Bytes of_others{4 << 20};

  std::vector<SmallProgram::Timed> times_;
  ViewedOperand elsewhere_ = held(DType::FP32, {of_others / size_of(DType::FP32)});
};

const ViewedOperand absent{};

// Whoever is timed from here on waits for nobody.
void meet(Writer& w, const ViewedOperand& together) {
  w.builder.collective(CommSlot{0}, {CollectiveKind::AllReduce, DType::FP32}, together.operand, together.operand,
                       size_of(DType::FP32));
}

}  // namespace

SmallProgram product_program(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t repeats) {
  Writer w;
  const ViewedOperand a = w.held(dtype, {m, k}), b = w.held(dtype, {k, n}), sums = w.held(DType::FP32, {m, n});
  const auto turned = [&](const ViewedOperand& x, std::int64_t rows, std::int64_t columns) {
    return ViewedOperand{x.operand, w.builder.view(dtype, {rows, columns}, {1, rows})};
  };
  const ViewedOperand a_turned = turned(a, m, k), b_turned = turned(b, k, n);
  for (std::int64_t i = 0; i < repeats; ++i) {
    for (const ViewedOperand& weights : {b_turned, b}) {
      w.after_others(a);
      w.timed([&] {
        const ViewedOperand c = w.fresh(dtype, {m, n});
        w.builder.launch({Operation::Matmul, {1}}, {a, weights, absent, absent}, {c});
        w.free(c);
      });
    }
    w.after_others(a);
    w.timed([&] { w.builder.launch({Operation::Matmul, {1}}, {a_turned, b, absent, sums}, {sums}); });
  }
  return std::move(w).finish();
}

SmallProgram attention_program(DType dtype, std::int64_t batch, std::int64_t heads, std::int64_t sequence,
                               std::int64_t width, std::int64_t repeats) {
  Writer w;
  const Shape sizes{batch, sequence, heads, width};
  const ViewedOperand q = w.held(dtype, sizes), k = w.held(dtype, sizes), v = w.held(dtype, sizes),
                      dy = w.held(dtype, sizes);
  const Attributes attributes{1 / static_cast<double>(width), 1, 0};
  const ViewedOperand kept = w.fresh(dtype, sizes), lse = w.fresh(DType::FP32, {batch, heads, sequence});
  for (std::int64_t i = 0; i < repeats; ++i) {
    w.after_others(q);
    w.timed([&] {
      const ViewedOperand y = w.fresh(dtype, sizes), unused = w.fresh(DType::FP32, {batch, heads, sequence});
      w.builder.launch({Operation::Attention, attributes}, {q, k, v, absent}, {y, unused, absent, absent});
      w.free(y), w.free(unused);
    });
    if (i == 0) w.builder.launch({Operation::Attention, attributes}, {q, k, v, absent}, {kept, lse, absent, absent});
    w.after_others(dy);
    w.timed([&] {
      const ViewedOperand dq = w.fresh(dtype, sizes), dk = w.fresh(dtype, sizes), dv = w.fresh(dtype, sizes);
      w.builder.launch({Operation::AttentionBackward, attributes}, {dy, q, k, v, kept, lse, absent, absent, absent},
                       {dq, dk, dv});
      w.free(dq), w.free(dk), w.free(dv);
    });
  }
  return std::move(w).finish();
}

SmallProgram collective_program(CollectiveKind kind, std::int64_t members, Bytes size, std::int64_t repeats) {
  Writer w;
  const std::int64_t whole = size / size_of(DType::FP32), part = whole / members;
  const bool small_in = kind == CollectiveKind::AllGather, small_out = kind == CollectiveKind::ReduceScatter;
  const ViewedOperand in = w.held(DType::FP32, {small_in ? part : whole});
  const ViewedOperand out = w.held(DType::FP32, {small_out ? part : whole});
  const ViewedOperand together = w.held(DType::FP32, {1});
  for (std::int64_t i = 0; i < repeats; ++i) {
    w.after_others(in);
    meet(w, together);
    w.timed([&] { w.builder.collective(CommSlot{0}, {kind, DType::FP32}, in.operand, out.operand, size); });
  }
  return std::move(w).finish();
}

SmallProgram message_program(bool first, Bytes size, std::int64_t repeats) {
  Writer w;
  const std::int64_t elements = std::max<std::int64_t>(size / size_of(DType::FP32), 1);
  const ViewedOperand sent = w.held(DType::FP32, {elements}), received = w.held(DType::FP32, {elements});
  const ViewedOperand together = w.held(DType::FP32, {1});
  const std::array<Transfer, 1> send{Transfer{Direction::Send, 1, sent.operand.buffer}},
      receive{Transfer{Direction::Receive, -1, received.operand.buffer}};
  for (std::int64_t i = 0; i < repeats; ++i) {
    w.after_others(sent);
    meet(w, together);
    w.timed([&] {
      w.builder.exchange(CommSlot{0}, first ? send : receive);
      w.builder.exchange(CommSlot{0}, first ? receive : send);
    });
  }
  return std::move(w).finish();
}

SmallProgram copy_program(bool to_device, Bytes size, std::int64_t repeats) {
  Writer w;
  const ViewedOperand here = w.held(DType::FP32, {size / size_of(DType::FP32)});
  const BufferId there = w.allocate(size, MemorySpace::Pinned);
  w.builder.push(Memcpy{ProgramBuilder::compute, here.operand, Operand{there}, size});
  for (std::int64_t i = 0; i < repeats; ++i) {
    const Operand from = to_device ? Operand{there} : here.operand, to = to_device ? here.operand : Operand{there};
    w.after_others(here);
    w.timed([&] { w.builder.push(Memcpy{ProgramBuilder::compute, from, to, size}); });
  }
  return std::move(w).finish();
}

SmallProgram idle_program(std::int64_t repeats) {
  Writer w;
  for (std::int64_t i = 0; i < repeats; ++i) w.timed([&] { w.builder.push(Mark{}); });
  return std::move(w).finish();
}

}  // namespace tidemark::scenarios
