#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

/// Values that many candidates share, made when first asked for; from any thread. A value is made of its key and of
/// nothing else, so whoever asked first makes no difference to it. Keys are equal by a defaulted ==; the hash that
/// comes with one may leave out what it likes.
template <class Key, class Value>
class Shared {
 public:
  explicit Shared(std::function<Value(const Key&)> make) : make_(std::move(make)) {}

  std::shared_ptr<const Value> get(const Key& key, std::uint64_t hash) {
    {
      const std::shared_lock lock(mutex_);
      if (auto found = find(key, hash)) return found;
    }
    auto made = std::make_shared<const Value>(make_(key));
    const std::unique_lock lock(mutex_);
    if (auto found = find(key, hash)) return found;  // by another thread meanwhile: the same
    known_[hash].emplace_back(key, made);
    return made;
  }

 private:
  std::shared_ptr<const Value> find(const Key& key, std::uint64_t hash) const {
    const auto bucket = known_.find(hash);
    if (bucket == known_.end()) return nullptr;
    for (const auto& [its, value] : bucket->second)
      if (its == key) return value;
    return nullptr;
  }

  std::function<Value(const Key&)> make_;
  mutable std::shared_mutex mutex_;
  std::unordered_map<std::uint64_t, std::vector<std::pair<Key, std::shared_ptr<const Value>>>> known_;
};

/// The same of values that take much memory, or that candidates ask for soon after each other: only so many are kept,
/// those that were made last.
template <class Key, class Value>
class Latest {
 public:
  explicit Latest(std::size_t most) : most_(most) {}

  /// `make` gives a shared pointer.
  template <class Make>
  std::shared_ptr<Value> get(const Key& key, Make make) {
    {
      const std::lock_guard lock(mutex_);
      if (auto found = find(key)) return found;
    }
    std::shared_ptr<Value> made = make(key);
    const std::lock_guard lock(mutex_);
    if (auto found = find(key)) return found;
    known_.emplace_back(key, made);
    if (known_.size() > most_) known_.pop_front();
    return made;
  }

 private:
  std::shared_ptr<Value> find(const Key& key) const {
    const auto found = std::ranges::find(known_, key, &std::pair<Key, std::shared_ptr<Value>>::first);
    return found == known_.end() ? nullptr : found->second;
  }

  std::size_t most_;
  std::mutex mutex_;
  std::deque<std::pair<Key, std::shared_ptr<Value>>> known_;
};

}  // namespace tidemark::scenarios
