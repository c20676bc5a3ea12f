#include "parallel/frameworks/pytorch/script.hpp"

namespace tidemark::parallel::pytorch {

void start_up(Session& session, const Communicators& groups) {
  session.process.at(0, -1);
  session.mark(Phase::Construction, "start_up");
  session.process.create(DriverResource::Context);
  session.process.create(DriverResource::Modules);
  if (groups.world.valid()) session.process.create(DriverResource::NcclKernels);
}

void filter_loss(Session& session) {
  const NoGrad no_grad(session);
  const Session::Scope scope(session, "nan_inf_filter");
  for (const std::string_view question : {"isnan", "isinf"}) {
    const Tensor answer = session.empty({}, DType::BOOL, question);
    session.launch({Operation::Fill, {0}}, {}, {answer});  // numbers here are always finite
    session.process.synchronize();
  }
}

}  // namespace tidemark::parallel::pytorch
