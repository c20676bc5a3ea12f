#include "scenarios/recordings/pickle/pickle_memo.hpp"

#include <variant>

namespace tidemark::scenarios {

void PickleMemo::set(std::size_t index, const PickleValue& value) {
  if (index >= kinds_.size()) {
    if (index >= kinds_.capacity()) {  // a quarter at a time: there can be as many as fit in memory
      kinds_.reserve(index + index / 4 + 64);
      places_.reserve(index + index / 4 + 64);
    }
    kinds_.resize(index + 1, Kind::Absent);
    places_.resize(index + 1);
  }
  if (kinds_[index] == Kind::Absent) ++count_;
  const auto put = [&](Kind kind, std::uint32_t place) {
    kinds_[index] = kind;
    places_[index] = place;
  };
  if (const auto* text = std::get_if<PickleText>(&value)) {
    put(Kind::Text, text->index);
  } else if (const auto* list = std::get_if<PickleList>(&value)) {
    put(Kind::List, list->index);
  } else if (const auto* tuple = std::get_if<PickleTuple>(&value)) {
    put(Kind::Tuple, tuple->index);
  } else if (const auto* dict = std::get_if<PickleDict>(&value)) {
    put(Kind::Dict, dict->index);
  } else if (const auto* bytes = std::get_if<PickleBytes>(&value)) {
    put(Kind::Bytes, bytes->index);
  } else if (const auto* set = std::get_if<PickleSet>(&value)) {
    put(Kind::Set, set->index);
  } else {
    if (others_.empty() || others_.back() != value) others_.push_back(value);
    put(Kind::Other, static_cast<std::uint32_t>(others_.size() - 1));
  }
}

std::optional<PickleValue> PickleMemo::get(std::size_t index) const {
  if (index >= kinds_.size()) return std::nullopt;
  const std::uint32_t place = places_[index];
  switch (kinds_[index]) {
    case Kind::Absent:
      return std::nullopt;
    case Kind::Text:
      return PickleText{place};
    case Kind::List:
      return PickleList{place};
    case Kind::Tuple:
      return PickleTuple{place};
    case Kind::Dict:
      return PickleDict{place};
    case Kind::Bytes:
      return PickleBytes{place};
    case Kind::Set:
      return PickleSet{place};
    case Kind::Other:
      return others_[place];
  }
  return std::nullopt;
}

}  // namespace tidemark::scenarios
