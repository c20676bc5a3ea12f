"""Where a step of the training ends: with the first forward pass after an optimizer has stepped, so that what a framework
does between (sharded optimizers gather parameters then) is of the step. Optimizers that step in turn, each once, are one
step."""


class Steps:
    def __init__(self, torch, run):
        self.torch, self.run = torch, run
        self.set_up = None  # counters before the first forward pass that an optimizer's step followed
        self.steps = []  # one dict each
        self.stepped = set()  # optimizers, since the last end of a step
        self.before = set()  # those of the steps before, in this round
        self.peak = {}  # highest counters since the last end of a step
        self.hook = None
        self.started = None

    def count(self):
        return len(self.steps)

    def told(self):
        return {"steps": self.steps, "set_up": self.set_up or {}, "rest": self.peak}

    def gather_peak(self):
        """What the counters' peaks were since they were last reset."""
        for name, value in self.run.device.counters("peak").items():
            self.peak[name] = max(self.peak.get(name, 0), value)

    def reset(self):
        if self.run.device.ready():
            self.torch.cuda.reset_peak_memory_stats(self.run.device.index())
        self.peak = {}

    def begin(self):
        """The first forward pass: what came before is set-up."""
        self.gather_peak()
        self.set_up = {"peak": self.peak, "after": self.run.device.counters("current")}
        self.reset()

    def before_optimizer(self, optimizer):
        self.run.device.labels.look_at(optimizer, "gradients")

    def after_optimizer(self, optimizer):
        self.run.device.labels.look_at(optimizer, "optimizer_state")
        self.stepped.add(id(optimizer))
        if self.hook is None:
            self.hook = self.wait_for_forward(self.end_step)

    def wait_for_forward(self, call):
        def first(module, arguments):
            hook.remove()
            call()

        hook = self.torch.nn.modules.module.register_module_forward_pre_hook(first)
        return hook

    def end_step(self):
        self.hook = None
        self.finish_step()
        if self.count() >= self.run.steps_wanted:
            self.run.end("completed")

    def finish_step(self):
        self.gather_peak()
        now = self.run.device.counters("current")
        if self.steps and self.stepped.isdisjoint(self.before):  # another optimizer's turn: still the same step
            step = self.steps[-1]
            step["peak"] = {name: max(value, self.peak[name]) for name, value in step["peak"].items()}
            step["after"] = now
            self.before |= self.stepped
        else:
            self.steps.append({"peak": self.peak, "after": now})
            self.before = set(self.stepped)
        self.stepped = set()
        self.run.device.labels.look_around()
        self.reset()

    def finish(self):
        """The script is over: a step that has ended but for a forward pass after it is one."""
        if self.stepped:
            self.finish_step()
        self.gather_peak()


def prepare(torch, run):
    from torch.optim import optimizer

    steps = run.steps = Steps(torch, run)
    optimizer.register_optimizer_step_pre_hook(lambda its, args, kwargs: steps.before_optimizer(its))
    optimizer.register_optimizer_step_post_hook(lambda its, args, kwargs: steps.after_optimizer(its))
    steps.wait_for_forward(steps.begin)
    keep_peaks(torch.cuda, steps)


def keep_peaks(cuda, steps):
    """The script may reset the counters too."""
    memory = cuda.memory
    for name in ("reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached"):
        if not hasattr(memory, name):
            continue

        def reset(*args, _call=getattr(memory, name), **kwargs):
            steps.gather_peak()
            return _call(*args, **kwargs)

        setattr(memory, name, reset)
        if hasattr(cuda, name):
            setattr(cuda, name, reset)
