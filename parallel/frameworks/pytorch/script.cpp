#include "parallel/frameworks/pytorch/script.hpp"

namespace tidemark::parallel::pytorch {

void start_up(Session& session, const Communicators& groups) {
  session.process.at(0, -1);
  session.mark(Phase::Construction, "start_up");
  session.process.create(DriverResource::Context);
  session.process.create(DriverResource::Modules);
  if (groups.world.valid()) session.process.create(DriverResource::NcclKernels);
}

}  // namespace tidemark::parallel::pytorch
