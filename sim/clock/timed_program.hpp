#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "sim/base/time.hpp"
#include "sim/clock/time_costs.hpp"
#include "sim/program/program.hpp"
#include "sim/program/structure/repeats.hpp"

// A program with nothing left but what takes time or waits, each stream's part by itself. The host thread only ever
// waits in a Sync, or where its launch queue is full (queue_points.hpp). Between two such places, in a *stretch*,
// everything is handed over at a known distance from the start of the stretch, so that a stream needs the start only,
// and no queue of what it has been handed.

namespace tidemark::sim {

/// What a stream does next.
struct TimedOp {
  enum class Kind : std::uint32_t { Kernels, Record, Wait, Collective, Exchange, Copy };

  /// From the start of the stretch until the host thread has handed it over. Of kernels: until the last of them ends,
  /// if none waits for anything but the host thread and those before it.
  Duration after;
  Duration duration;       ///< of kernels, one after another
  std::uint32_t op = 0;    ///< index into Program::ops; of the first of several kernels
  std::uint32_t what = 0;  ///< how many kernels; or which event, or entry of `collectives`, `exchanges` or `copies`
  std::uint32_t stretch = 0;
  Kind kind = Kind::Kernels;
  bool operator==(const TimedOp&) const = default;
};
static_assert(sizeof(TimedOp) <= 32);

/// What a host thread does until it waits for an event, sees whether its launch queue has room, or ends.
struct HostStretch {
  Duration length;
  std::uint32_t first = 0, last = 0;  ///< its ops: from first to before last
  std::int32_t sync = -1;             ///< the event it then waits for; -1: none
  bool operator==(const HostStretch&) const = default;
};

/// Where the host thread ends a step.
struct StepEnd {
  std::uint32_t stretch = 0;
  Duration after;  ///< the start of the stretch
  bool operator==(const StepEnd&) const = default;
};

/// Messages that go out together, as a price list and the other side tell them apart.
struct TimedExchange {
  struct Message {
    Direction direction = Direction::Send;
    std::int32_t step = 0;
    Bytes size;
    friend auto operator<=>(const Message&, const Message&) = default;
  };
  CommSlot comm;
  std::vector<Message> messages;
  friend auto operator<=>(const TimedExchange&, const TimedExchange&) = default;
};

/// Bodies that are alike, one after another: of each list so many entries from `first` on are a body's, and each of
/// them is the one that many entries before, but for ops, stretches and events that are as many later in every body.
/// Lists hold the first body only.
struct TimedLoop {
  struct Part {
    std::int64_t first = 0;  ///< where the loop begins in the list, were all its bodies written out
    std::uint32_t length = 0;
    std::uint32_t held = 0;  ///< where it begins in the list that is held
    bool operator==(const Part&) const = default;
    [[nodiscard]] std::int64_t end(std::int64_t bodies) const { return first + bodies * length; }
  };
  std::int64_t bodies = 0;                   ///< none: bodies are not alike on the clock
  std::uint32_t first_op = 0, ops = 0;       ///< of a body
  std::vector<Part> streams;                 ///< by StreamId
  Part host;                                 ///< stretches
  std::vector<std::int64_t> launches;        ///< of a body, by channel of the launch queue
  std::int64_t first_event = 0, events = 0;  ///< a body records so many, numbered from there on
  std::int64_t reach = 0;                    ///< a body waits for events of bodies that many before it at most
  std::vector<std::uint32_t> outer_events;   ///< of none of them, that bodies wait for
  bool operator==(const TimedLoop&) const = default;
};

/// Events are numbered as the program does, but that one which is recorded again gets a number of its own each time.
/// Entries of a stream are in order of `op`, and so are stretches: a place in the program is one in each of these
/// lists. Of loops the lists hold the first body; OpCursor, `stretch` and `launched_before` know all of them.
struct TimedProgram {
  std::vector<std::vector<TimedOp>> streams;  ///< by StreamId
  std::vector<HostStretch> host;              ///< one at least
  /// By held stretch and channel of the launch queue: how many launches come before the stretch. Empty where the queue
  /// never fills.
  std::vector<std::int64_t> launched;
  std::vector<StepEnd> step_ends;          ///< all but the last, which is the program's
  std::vector<CollectiveKey> collectives;  ///< each once
  std::vector<TimedExchange> exchanges;    ///< each once
  std::vector<CopyKey> copies;             ///< each once
  std::size_t events = 0;
  std::vector<TimedLoop> loops;  ///< one for each part that the program says once, in order

  [[nodiscard]] std::int64_t stretches() const;
  [[nodiscard]] HostStretch stretch(std::int64_t which) const;
  /// How many launches on the channel, of so many channels, come before the stretch.
  [[nodiscard]] std::int64_t launched_before(std::int64_t stretch, std::size_t channel, std::size_t channels) const;
  bool operator==(const TimedProgram&) const = default;
};

/// Goes through what a stream does, entry by entry, loops body by body. The program has to outlive it.
class OpCursor {
 public:
  OpCursor(const TimedProgram& program, std::size_t stream) : program_(&program), stream_(stream) { go_to(0); }

  /// What comes next, with the numbers of the body that it is of. Not to be called where `is_over`.
  [[nodiscard]] const TimedOp& op() const { return op_; }
  [[nodiscard]] bool is_over() const { return over_; }
  /// How many entries come before it.
  [[nodiscard]] std::int64_t place() const { return place_; }

  void advance() {
    ++place_;
    if (++held_ == last_)
      go_to(place_);
    else
      load();
  }
  void go_to(std::int64_t place);

 private:
  void load() {
    op_ = *held_;
    if (body_ != 0) come_later();
  }
  void come_later();

  const TimedProgram* program_;
  std::size_t stream_;
  TimedOp op_;
  const TimedOp *held_ = nullptr, *last_ = nullptr;  // until where entries follow one another
  const TimedLoop* loop_ = nullptr;                  // none: outside
  std::int64_t body_ = 0, place_ = 0;
  bool over_ = false;
};

/// Whether kernels that follow one another on a stream become one entry. `n` kernels of durations d₁ … dₙ, handed over
/// at distances h₁ … hₙ from the start of their stretch, take a stream that is busy until t to
/// max(t + Σdᵢ, start + maxᵢ(hᵢ + dᵢ + … + dₙ)), which is what one after another they would.
enum class Kernels : std::uint8_t { Together, Each };

/// What multiprocessors that collectives take cost the kernels beside them. A collective's kernel keeps a
/// multiprocessor for each of its channels until it ends. Of a kernel that comes to them later with one block for each
/// multiprocessor, the last blocks begin when the collective is over, or the first ones: it takes longer by the lesser
/// of its second wave and what is left of the collective. Which of them meet is told by the rank's streams alone, as if
/// its host thread were never late and no rank waited for another, so that it is the same for all ranks of a class.
struct Beside {
  std::vector<Duration> second_waves;             ///< as in OpTimes
  std::map<CollectiveKey, Duration> collectives;  ///< of each, alone on its links
  bool operator==(const Beside&) const = default;
};

/// A queue that no host thread fills.
inline constexpr LaunchQueue endless_queue{.depth = LaunchQueue::endless, .channels = 1};

/// `host`, `kernels` and `queue` as in OpTimes.
[[nodiscard]] TimedProgram timed(const Program& program, const HostCosts& host, const std::vector<Duration>& kernels,
                                 Kernels how, const Beside& beside = {}, const LaunchQueue& queue = endless_queue);

/// Of all that the program stands for, without unrolling it.
[[nodiscard]] TimedProgram timed(const RepeatingProgram& program, const HostCosts& host,
                                 const std::vector<Duration>& kernels, Kernels how, const Beside& beside = {},
                                 const LaunchQueue& queue = endless_queue);

}  // namespace tidemark::sim
