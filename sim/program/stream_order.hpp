#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/program/program.hpp"

namespace tidemark::sim {

/// What streams know of each other: which work of another stream lies before what a stream is given next, because it,
/// or the host thread, has waited. Ops are told to it in order.
class StreamOrder {
 public:
  explicit StreamOrder(const Program& program);

  void note(const Op& op);
  /// A stream other than the buffer's own that may still be using it: a block that is given back now could be handed
  /// out again under it. Borrowed buffers wait, so that nobody can.
  [[nodiscard]] std::optional<StreamId> still_using(BufferId buffer) const;
  /// A stream that may still be copying from or to a buffer of the host when the host thread writes to it.
  [[nodiscard]] std::optional<StreamId> still_copying(BufferId buffer) const;
  /// Work of a stream.
  struct Moment {
    StreamId stream;        ///< none: the host thread
    std::int64_t work = 0;  ///< so much of it
  };
  /// The work that the stream is given next.
  [[nodiscard]] Moment next_of(StreamId stream) const;
  /// Whether that is over before the next work of `reader` begins; none: the host thread.
  [[nodiscard]] bool lies_before(const Moment& moment, StreamId reader) const;
  /// A stream that may still be writing to the buffer when the next work of `reader` reads it; none: the host thread.
  [[nodiscard]] std::optional<StreamId> still_writing(BufferId buffer, StreamId reader) const;

 private:
  using Clock = std::vector<std::int64_t>;  // by stream: how much of its work is known to lie before

  struct Use {
    StreamId own;  // none: of the host
    Clock by;      // streams, but for its own: their last use
    bool cross_stream = false;
    Moment written;  // last; by the host thread, or nobody, where there is no stream
  };
  static void merge(Clock& into, const Clock& from);
  void use(StreamId stream, BufferId buffer);
  void write(StreamId stream, BufferId buffer);

  const Program& program_;
  std::vector<Clock> known_;  // by stream
  Clock host_, issued_;
  std::vector<Clock> recorded_;  // by event
  std::vector<Use> uses_;        // by buffer
};

}  // namespace tidemark::sim
