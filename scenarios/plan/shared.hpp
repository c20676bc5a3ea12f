#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "scenarios/namespace.hpp"

namespace tidemark::scenarios {

/// Values that many candidates share, made when first asked for; from any thread. `Key` has ==, and comes with a hash.
template <class Key, class Value>
class Shared {
 public:
  template <class Make>
  std::shared_ptr<const Value> get(const Key& key, std::uint64_t hash, Make make) {
    {
      const std::shared_lock lock(mutex_);
      if (auto found = find(key, hash)) return found;
    }
    auto made = std::make_shared<const Value>(make());
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

  mutable std::shared_mutex mutex_;
  std::unordered_map<std::uint64_t, std::vector<std::pair<Key, std::shared_ptr<const Value>>>> known_;
};

}  // namespace tidemark::scenarios
