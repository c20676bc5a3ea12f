#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "parallel/job/mesh.hpp"
#include "parallel/job/sizes.hpp"
#include "scenarios/predict/job.hpp"

// A rank's parts of a model's parameters, and where they stand in the whole.

namespace tidemark::scenarios {

/// The first expert that a rank holds, and which part of each.
struct PlaceOfExperts {
  std::int64_t first = 0;
  std::int32_t tensor_rank = 0;
};

/// A rank's part of a parameter.
class ParameterPart {
 public:
  /// Of one that is cut row by row at most: the rank draws its elements from `drawn_from` on.
  ParameterPart(std::string name, std::int64_t rows, std::int64_t columns, std::int64_t drawn_from)
      : name_(std::move(name)), matrix_(columns > 1), rows_(rows), columns_(columns), drawn_from_(drawn_from) {}
  /// What tensor and expert parallelism leave to a rank.
  ParameterPart(const Parameter& parameter, const Model& model, const Sizes& sizes, std::int32_t tensor_rank,
                PlaceOfExperts experts);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] bool matrix() const { return matrix_; }
  /// Of the whole.
  [[nodiscard]] std::int64_t elements() const { return rows_ * columns_ * (cut_ == WeightCut::None ? 1 : ranks_); }
  /// The part's element that comes first where it is drawn.
  [[nodiscard]] std::int64_t drawn_from() const { return drawn_from_; }
  /// In the whole, of an element of the part; both count row by row.
  [[nodiscard]] std::int64_t place(std::int64_t element) const;

 private:
  std::string name_;
  bool matrix_ = false;
  WeightCut cut_ = WeightCut::None;
  std::int64_t rank_ = 0, ranks_ = 1;
  std::int64_t rows_, columns_;  // of the part
  /// Rows of the part in each of the weights in it, of all of which each rank has some: two of a gate's.
  std::vector<std::int64_t> joined_;
  std::int64_t drawn_from_ = 0;
};

/// The parameters of a rank at that place, as its programs call them: by the label of the buffer that each is drawn in.
class RankParameters {
 public:
  RankParameters(const Job& job, const Coordinates& place);

  /// An element of a part.
  struct Drawn {
    const ParameterPart* part;
    std::int64_t element;
  };
  /// What an element of a buffer is; none where the label is that of something else.
  [[nodiscard]] std::optional<Drawn> drawn(std::string_view label, std::int64_t element) const;
  [[nodiscard]] const ParameterPart& named(const std::string& name) const;

 private:
  void add(std::string label, ParameterPart part);

  std::map<std::string, ParameterPart, std::less<>> by_label_;
  /// Of a buffer in which parts of several are drawn, where each begins.
  struct Flat {
    std::string label;
    std::map<std::int64_t, const ParameterPart*> begins;
  };
  std::optional<Flat> flat_;
  std::map<std::string, const ParameterPart*, std::less<>> by_name_;
};

/// Tokens that one rank routes at once, and how many of their choices fall on each expert of a layer; none where it has
/// no experts.
[[nodiscard]] std::int64_t routed_tokens(const Scenario& scenario);
[[nodiscard]] std::vector<std::vector<std::int64_t>> choices_of(const Scenario& scenario);
/// The experts of each layer that these tokens choose, one after the other; nothing where stated loads cannot be
/// chosen.
[[nodiscard]] std::optional<std::vector<std::vector<std::int64_t>>> top_k_experts_of(const Scenario& scenario);

}  // namespace tidemark::scenarios
