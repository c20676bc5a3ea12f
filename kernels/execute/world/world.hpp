#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/execute/namespace.hpp"
#include "sim/base/units.hpp"
#include "sim/program/program.hpp"

namespace tidemark::execute {

/// The run is over on all ranks: one of them could not go on. Every rank throws it (where MPI carries messages, it ends
/// instead: mpi_world.hpp), and one of them, which may be any that still runs, tells people.
class RunFailure : public std::runtime_error {
 public:
  explicit RunFailure(const std::string& what, Rank teller = {0}) : std::runtime_error(what), teller_(teller) {}
  [[nodiscard]] Rank teller() const { return teller_; }

 private:
  Rank teller_;
};

/// One side of a message between two processes. Messages between two ranks with one tag arrive in order.
struct Message {
  Direction direction = Direction::Send;
  Rank peer;
  std::int32_t tag = 0;
  void* data = nullptr;
  std::size_t bytes = 0;
};

/// The processes of a run, one per rank. Nothing waits longer than the time limit it was made with; then, and when any
/// rank reports a failure, everything that waits throws RunFailure.
class World {
 public:
  World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  virtual ~World() = default;

  [[nodiscard]] virtual Rank rank() const = 0;
  [[nodiscard]] virtual std::int32_t size() const = 0;
  /// All go out together; returns when all are done. `doing` says what for, should it take too long.
  virtual void exchange(std::span<const Message> messages, const std::string& doing) = 0;
  /// For whoever waits for something else: throws RunFailure where another rank has reported one.
  virtual void listen() {}
  /// Tells the other ranks that this one cannot go on, and throws RunFailure.
  virtual void report_failure(const std::string& why) = 0;

  void barrier();
  /// Everyone's text, by rank, at rank 0; nothing elsewhere.
  [[nodiscard]] std::vector<std::string> gather(const std::string& mine);
  /// Rank 0's text, everywhere.
  [[nodiscard]] std::string broadcast(std::string text);
  /// What the first rank with anything to say says, everywhere.
  [[nodiscard]] std::string first_said(const std::string& mine);

  /// Tags from here on are free for payloads.
  static constexpr std::int32_t first_payload_tag = 16;
};

}  // namespace tidemark::execute
