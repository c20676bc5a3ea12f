-- Slurm's job_submit plugin (JobSubmitPlugins=lua, this file beside slurm.conf): refuses a batch script that says what it trains and
-- will not fit. A script asks for it by a line such as
--   #TIDEMARK --cluster h100-sxm-80g
-- whose options go to `tidemark predict`. What is not a clear no goes through: the controller waits for this, and nobody's job may
-- hang on it.

local program = os.getenv("TIDEMARK_PROGRAM") or "tidemark"
local seconds = 10

-- Words of an option line, each as one word of the shell's.
local function words_of(line)
  local words = {}
  for word in line:gmatch("%S+") do
    words[#words + 1] = "'" .. word:gsub("'", "'\\''") .. "'"
  end
  return table.concat(words, " ")
end

local function write_down(script)
  local path = os.tmpname()
  local file = io.open(path, "w")
  if not file then return nil end
  file:write(script)
  file:close()
  return path
end

-- The exit code of a prediction and the first line that it tells.
local function ask(path, options)
  local command = string.format("timeout %d '%s' predict %s %s 2>&1; echo exit=$?", seconds, program, path, words_of(options))
  local pipe = io.popen(command)
  if not pipe then return nil, "" end
  local text = pipe:read("a")
  pipe:close()
  return tonumber(text:match("exit=(%d+)%s*$")), text:match("[^\n]*")
end

function slurm_job_submit(job, partitions, user)
  local script = job.script
  local options = script and ("\n" .. script):match("\n#TIDEMARK([^\n]*)")
  if not options then return slurm.SUCCESS end
  local path = write_down(script)
  if not path then return slurm.SUCCESS end
  local code, first = ask(path, options)
  os.remove(path)
  if code == 1 then
    slurm.log_user("tidemark: %s", first)
    slurm.log_user("tidemark: not submitted; without the line #TIDEMARK it is")
    return slurm.ERROR
  end
  if code ~= 0 then slurm.log_user("tidemark says neither yes nor no: %s", first or "") end
  return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, user)
  return slurm.SUCCESS
end

return slurm.SUCCESS
