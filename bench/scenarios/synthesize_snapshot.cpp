// Writes a memory snapshot of any size as torch.cuda.memory._dump_snapshot would: a training run on the emulated
// allocator, pickled by Python's rules (protocol 4; every text, list and dict memoized; a list of 40 frames for each
// allocation, which its frees share, as with context="all"; the frames themselves shared).
//
//   synthesize_snapshot FILE MEGABYTES
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "bench/namespace.hpp"
#include "sim/memory/caching_allocator.hpp"

namespace tidemark::bench {
namespace {

/// Python's pickler, as far as a snapshot needs it.
class Pickler {
 public:
  explicit Pickler(std::FILE* file) : file_(file) { put("\x80\x04"); }
  ~Pickler() { put("."); }

  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

  void open_list() { put("]\x94("), ++memoized_; }
  void open_dict() { put("}\x94("), ++memoized_; }
  void mark() { put("("); }
  void close_list() { put("e"); }
  void close_dict() { put("u"); }
  [[nodiscard]] std::uint32_t last_memoized() const { return memoized_ - 1; }

  void recall(std::uint32_t index) {
    if (index < 256) {
      put("h"), put_little(index, 1);
    } else {
      put("j"), put_little(index, 4);
    }
  }
  /// A text object that is there once, such as a key.
  void shared(std::string_view text) {
    const auto [known, is_new] = texts_.try_emplace(std::string(text), memoized_);
    if (is_new) {
      own(text);
    } else {
      recall(known->second);
    }
  }
  /// A text object of its own.
  void own(std::string_view text) { put("\x8c"), put_little(text.size(), 1), put(text), put("\x94"), ++memoized_; }
  void integer(std::uint64_t n) {
    if (n < 256) {
      put("K"), put_little(n, 1);
    } else if (n < 65'536) {
      put("M"), put_little(n, 2);
    } else if (n < 1ULL << 31) {
      put("J"), put_little(n, 4);
    } else {
      put("\x8a\x08"), put_little(n, 8);
    }
  }
  void boolean(bool b) { put(b ? "\x88" : "\x89"); }
  void pair_of_zeros() { put("K"), put_little(0, 1), put("K"), put_little(0, 1), put("\x86\x94"), ++memoized_; }

 private:
  void put(std::string_view bytes) {
    bytes_ += static_cast<std::int64_t>(bytes.size());
    std::fwrite(bytes.data(), 1, bytes.size(), file_);
  }
  void put_little(std::uint64_t n, int size) {
    char bytes[8];
    for (int i = 0; i < size; ++i) bytes[i] = static_cast<char>(n >> (8 * i));
    put({bytes, static_cast<std::size_t>(size)});
  }

  std::FILE* file_;
  std::int64_t bytes_ = 0;
  std::uint32_t memoized_ = 0;
  std::unordered_map<std::string, std::uint32_t> texts_;
};

class Run {
 public:
  Run(std::FILE* file, std::int64_t bytes) : bytes_(bytes), pickler_(file) {}

  void write() {
    pickler_.open_dict();
    pickler_.shared("device_traces");
    pickler_.open_list();
    pickler_.open_list();
    while (pickler_.bytes() < bytes_) step();
    pickler_.close_list();
    pickler_.close_list();
    pickler_.shared("segments");
    write_segments();
    pickler_.close_dict();
  }

 private:
  struct Live {
    BlockId block;
    std::uint32_t stack = 0;
  };

  // Activations live from forward to backward; temporaries for an operation.
  void step() {
    std::vector<Live> kept;
    for (int op = 0; op < 400; ++op) {
      const Live temporary = alloc(Bytes{1 << (9 + random_() % 16)});
      kept.push_back(alloc(Bytes{static_cast<std::int64_t>(1 + random_() % 8) << 18}));
      free(temporary);
    }
    while (!kept.empty()) {
      const Live gradient = alloc(Bytes{4 << 20});
      free(kept.back());
      free(gradient);
      kept.pop_back();
    }
  }

  Live alloc(Bytes size) {
    const BlockId block = std::get<BlockId>(allocator_.malloc(size, StreamId{0}));
    for (const SegmentEvent& event : allocator_.source().take_events()) {
      begin_event("segment_alloc", event.address, event.size);
      write_new_stack();
    }
    begin_event("alloc", allocator_.address(block), size);
    return {block, write_new_stack()};
  }
  void free(const Live& live) {
    for (const std::string_view action : {"free_requested", "free_completed"}) {
      begin_event(action, allocator_.address(live.block), allocator_.requested(live.block));
      pickler_.recall(live.stack);
      pickler_.close_dict();
    }
    allocator_.free(live.block);
  }

  // Up to the frames, which come last.
  void begin_event(std::string_view action, Address address, Bytes size) {
    if (++in_batch_ % 1000 == 0) {
      pickler_.close_list();
      pickler_.mark();
    }
    pickler_.open_dict();
    pickler_.shared("action"), pickler_.shared(action);
    pickler_.shared("addr"), pickler_.integer(address.value);
    pickler_.shared("size"), pickler_.integer(static_cast<std::uint64_t>(size.count()));
    pickler_.shared("stream"), pickler_.integer(0);
    pickler_.shared("time_us"), pickler_.integer(1'783'874'667'632'574ULL + in_batch_);
    pickler_.shared("compile_context"), pickler_.own("N/A");
    pickler_.shared("user_metadata"), pickler_.own("");
    pickler_.shared("frames");
  }
  std::uint32_t write_new_stack() {
    pickler_.open_list();
    const std::uint32_t list = pickler_.last_memoized();
    const std::uint64_t place = random_() % 4000;  // that many places in a program ask for memory
    for (std::uint64_t i = 0; i < 40; ++i) write_frame(i < 3 ? place / 20 + i : 300 + i);
    pickler_.close_list();
    pickler_.close_dict();
    return list;
  }
  void write_frame(std::uint64_t frame) {
    const auto known = frames_.find(frame);
    if (known != frames_.end()) return pickler_.recall(known->second);
    pickler_.open_dict();
    frames_[frame] = pickler_.last_memoized();
    pickler_.shared("name"), pickler_.own("function_" + std::to_string(frame));
    pickler_.shared("filename"), pickler_.shared("/job/model_" + std::to_string(frame / 50) + ".py");
    pickler_.shared("line"), pickler_.integer(10 + frame);
    pickler_.close_dict();
  }

  void write_segments() {
    pickler_.open_list();
    for (const SegmentLayout& segment : allocator_.layout()) {
      pickler_.open_dict();
      pickler_.shared("device"), pickler_.integer(0);
      pickler_.shared("address"), pickler_.integer(segment.address.value);
      pickler_.shared("total_size"), pickler_.integer(static_cast<std::uint64_t>(segment.size.count()));
      pickler_.shared("stream"), pickler_.integer(0);
      pickler_.shared("segment_type"), pickler_.shared(segment.pool == PoolKind::Small ? "small" : "large");
      pickler_.shared("segment_pool_id"), pickler_.pair_of_zeros();
      pickler_.shared("is_expandable"), pickler_.boolean(false);
      pickler_.shared("blocks");
      pickler_.open_list();
      for (const BlockLayout& block : segment.blocks) {
        pickler_.open_dict();
        pickler_.shared("address"), pickler_.integer(block.address.value);
        pickler_.shared("size"), pickler_.integer(static_cast<std::uint64_t>(block.size.count()));
        pickler_.shared("requested_size"), pickler_.integer(static_cast<std::uint64_t>(block.requested.count()));
        pickler_.shared("state"), pickler_.shared(block.state == BlockState::Free ? "inactive" : "active_allocated");
        pickler_.close_dict();
      }
      pickler_.close_list();
      pickler_.close_dict();
    }
    pickler_.close_list();
  }

  std::int64_t bytes_;
  Pickler pickler_;
  CachingAllocator<LoggedSegments<InventedAddresses>> allocator_;
  std::mt19937_64 random_{1};
  std::unordered_map<std::uint64_t, std::uint32_t> frames_;
  std::uint64_t in_batch_ = 0;
};

}  // namespace
}  // namespace tidemark::bench

int main(int argc, char** argv) {
  std::FILE* const file = argc == 3 ? std::fopen(argv[1], "wb") : nullptr;
  if (file == nullptr) {
    std::fprintf(stderr, "usage: synthesize_snapshot FILE MEGABYTES\n");
    return 2;
  }
  tidemark::bench::Run(file, std::atoll(argv[2]) * 1'000'000).write();
  return std::fclose(file) == 0 ? 0 : 3;
}
