#include "parallel/frameworks/pytorch/script.hpp"

#include "parallel/torch/ops/aten.hpp"

namespace tidemark::parallel::pytorch {

void start_up(Session& session, const Communicators& groups) {
  session.process.at(0, -1);
  session.mark(Phase::Construction, "start_up");
  session.process.create(DriverResource::Context);
  session.process.create(DriverResource::Modules);
  if (groups.world.valid()) session.process.create(DriverResource::NcclKernels);
}

void filter_loss(Session& session) {
  const Session::Scope scope(session, "nan_inf_filter");
  torch::ask_for_nan_and_inf(session);
}

}  // namespace tidemark::parallel::pytorch
