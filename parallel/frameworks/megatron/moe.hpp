#pragma once

#include <string>
#include <vector>

#include "parallel/frameworks/megatron/parameters.hpp"

namespace tidemark::parallel::megatron {

/// core/transformer/moe/moe_layer.py MoELayer, with the norm before it: experts of which a router chooses a few for
/// each token.
class MoeLayer {
 public:
  MoeLayer(Worker& worker, Parameters& parameters, const std::string& layer);

 private:
  Worker& w_;
  Name name_;
  Norm norm_;
  const Weight *router_ = nullptr, *router_bias_ = nullptr;
  std::vector<Linear> fc1_, fc2_;  ///< by expert
  const Weight* shared_gate_ = nullptr;
  Linear shared_fc1_, shared_fc2_;  ///< of the experts that every token goes through, where there are any
};

}  // namespace tidemark::parallel::megatron
