#include "scenarios/convert/shell/shell_words.hpp"

#include <string>

#include <gtest/gtest.h>

#include "scenarios/formats/input_error.hpp"
#include "tests/namespace.hpp"

namespace tidemark::tests::shell_words_test {
namespace {

// The commands, a line each, words between bars.
std::string read(const std::string& script, const std::map<std::string, std::string>& given = {}) {
  std::string text;
  for (const ShellCommand& command : read_shell(script, "job.sh", given).commands) {
    for (const ShellWord& word : command.words)
      text += (word.unknown.empty() ? word.text : "<" + word.unknown + ">") + '|';
    text += '\n';
  }
  return text;
}

TEST(ShellWords, QuotesContinuationsAndComments) {
  EXPECT_EQ(read("run 'a b' \"c d\" e\\ f \\\n  g # h\n#i\nrun2;run3 x#y"), "run|a b|c d|e f|g|\nrun2|\nrun3|x#y|\n");
  EXPECT_EQ(read("run \"\" '' \"a\\\"b\\n\""), "run|||a\"b\\n|\n");
}

TEST(ShellWords, VariablesAreSplitUnlessTheyAreQuoted) {
  EXPECT_EQ(read("A=\"x y\"\nrun $A \"$A\" '$A' ${A}z"), "run|x|y|x y|$A|x|yz|\n");
  EXPECT_EQ(read("A=1; A+=2; export B=$A; run $B ${C:-d e} ${C-} \"${C:-f}\" ${B:+g}"), "run|12|d|e|f|g|\n");
  EXPECT_EQ(read("N=${N:-4}\nrun $N $((N * 2 + 1)) $(( ($N+1)/2 ))", {{"N", "8"}}), "run|8|17|4|\n");
}

TEST(ShellWords, Arrays) {
  EXPECT_EQ(read("A=(--a 1 # one\n  --b \"2 3\"\n)\nA+=(--c)\nrun \"${A[@]}\" ${A[@]} ${#A[@]} ${A[1]}"),
            "run|--a|1|--b|2 3|--c|--a|1|--b|2|3|--c|5|1|\n");
  EXPECT_EQ(read("E=()\nrun \"${E[@]}\" x"), "run|x|\n");
  EXPECT_EQ(read("E=()\nrun $E ${E:?} x"), "run|<$E>|x|\n") << "bash ends at it";
}

TEST(ShellWords, WhatOnlyRunningItTellsIsMarkedWhereItIs) {
  EXPECT_EQ(read("run --d $(date +%s) --n $NODES `pwd`/x"), "run|--d|<$(date +%s)>|--n|<$NODES>|<`pwd`>|\n");
  EXPECT_EQ(read("A=\"--a $X\"\nrun $A ${B[@]} \"${C[*]}\" ${D}"), "run|--a|<$X>|<${B[@]}>|<${C[*]}>|<$D>|\n");
  EXPECT_EQ(read("run \"${B[@]}\" \"${C[@]}\"", {{"B", "--x 1"}, {"C", ""}}), "run|--x|1|\n")
      << "an array from outside";
  EXPECT_EQ(read("D=`pwd`\nO=\"--save $D/c --lr 1\"\nsh -c \"python $D/p.py $O\""),
            "python|<`pwd`>|--save|<`pwd`>|--lr|1|\n");
  EXPECT_EQ(read("T=\"cd x;\n run --a\"\nsrun -l bash -x -c \"$T\" 2>&1 | tee log"),
            "srun|-l|cd|x|\nsrun|-l|run|--a|\ntee|log|\n");
}

TEST(ShellWords, BranchesThatAreTaken) {
  EXPECT_EQ(read("T=8\nif [ $T -gt 1 ]; then A=big; elif [ $T = 1 ]; then A=one\nelse A=none; fi\nrun $A"),
            "run|big|\n");
  EXPECT_EQ(read("if [[ \"$X\" == \"y\" ]]; then\n run no\nelse\n run yes\nfi", {{"X", "n"}}), "run|yes|\n");
  EXPECT_EQ(
      read_shell("if command -v nvcc; then run a; fi; for i in $(seq 2); do run b; done\nrun c", "job.sh").skips.size(),
      2U);
  EXPECT_EQ(read("for i in 1 2; do\n run b $i\ndone\nf() { run d; }\nrun c"), "run|b|1|\nrun|b|2|\nrun|c|\n");
  EXPECT_EQ(read("for i in $(seq 2); do\n run b\ndone\nrun c"), "run|c|\n");
  EXPECT_EQ(read("N=1\nwhile [ $# -gt 0 ]; do case $1 in --n) N=$2; shift 2;; *) shift;; esac; done\nrun $N $#",
                 {{"1", "--x"}, {"2", "--n"}, {"3", "8"}}),
            "run|8|0|\n")
      << "arguments from outside";
  EXPECT_EQ(read("#SBATCH --nodes=2\nif [ -z $SLURM_JOB_ID ]; then sbatch $0; exit; fi\nrun $SLURM_NNODES"), "run|2|\n")
      << "sbatch runs it";
}

TEST(ShellWords, ConditionsOfSeveralParts) {
  EXPECT_EQ(read("if [ $A = 1 ] && [[ $A -gt 0 && $A != 2 ]]; then run yes; fi", {{"A", "1"}}), "run|yes|\n");
  EXPECT_EQ(read("if [[ $A == 2 || -z \"$B\" ]] || [ $A -ge 1 ]; then run yes; fi", {{"A", "1"}, {"B", "x"}}),
            "run|yes|\n");
  EXPECT_EQ(read("if [[ $A == fp8* ]]; then run yes; fi; if [ $A = 'fp8*' ]; then run no; fi", {{"A", "fp8_hybrid"}}),
            "run|yes|\n");
  EXPECT_EQ(read("if ! [ 1 = 2 ]; then run yes; fi; if ! true; then run no; fi"), "run|yes|\n");
  // One part is not known, and does not matter.
  EXPECT_EQ(read("if [ -f x ] || [ 1 = 1 ]; then run yes; fi; if [ -f x ] && [ 1 = 2 ]; then run no; fi"),
            "run|yes|\n");
  const ShellScript open = read_shell("if [ -f x ] || [ 1 = 2 ]; then run no; fi", "job.sh");
  EXPECT_TRUE(open.commands.empty());
  EXPECT_EQ(open.skips.size(), 1U);
}

TEST(ShellWords, WhatStandsBehindAndAndOr) {
  EXPECT_EQ(read("[ $A = 1 ] && O+=' --a'\n[[ $A == 2 && 1 == 1 ]] && O+=' --b'\n[ $A = 2 ] || O+=' --c'\nrun $O",
                 {{"A", "1"}}),
            "run|--a|--c|\n");
  EXPECT_EQ(read("cd x && run yes\nmkdir d || run no\nmkdir d || { run no; X=1; }\nmkdir d || (run no)\nrun ${X:-0}"),
            "cd|x|\nrun|yes|\nmkdir|d|\nmkdir|d|\nmkdir|d|\n"
            "run|<${X:-0} (what stands behind || in line 3 may assign it)>|\n");
  EXPECT_EQ(read("[ 1 = 1 ] && A=1 || A=2\n[ 1 = 2 ] && B=1 || B=2\nrun $A $B"), "run|1|2|\n");
  EXPECT_EQ(read("false && if true; then run no; fi\nrun yes"), "run|yes|\n");
  // What is not known is passed over, and said.
  const ShellScript open = read_shell("command -v nvcc && run no\nrun yes", "job.sh");
  EXPECT_EQ(open.commands.size(), 1U);
  EXPECT_EQ(open.skips.size(), 1U);
}

TEST(ShellWords, ScriptsInHereDocumentsAreFollowed) {
  EXPECT_EQ(read("N=4\nsbatch <<EOF\n#SBATCH --nodes=2\nsrun run $N \\$SLURM_NNODES\nEOF\nrun last"),
            "srun|run|4|2|\nrun|last|\n");
  EXPECT_EQ(read("srun -l bash -x <<-'EOF' | tee log\n\tA=1\n\trun $A\n\tEOF\nrun last"),
            "srun|-l|run|1|\ntee|log|\nrun|last|\n");
  EXPECT_EQ(
      read("cat <<'EOF' > job.sh\nrun $A\nEOF\nchmod +x job.sh\nexport A=3\nsrun -n 8 bash job.sh\nsbatch job.sh"),
      "cat|\nchmod|+x|job.sh|\nsrun|-n|8|run|3|\nrun|3|\n");
  EXPECT_EQ(read("cat <<A <<B\none\nA\ntwo\nB\nrun"), "cat|\nrun|\n");
  const ShellScript exported = read_shell("bash <<EOF\nexport X=1\nEOF", "job.sh");
  EXPECT_EQ(exported.exported, (std::map<std::string, std::string>{{"X", "1"}}));
}

TEST(ShellWords, RedirectionsPipesAndHereDocuments) {
  EXPECT_EQ(read("run a >out 2>&1 | tee log &\nrun b < in"), "run|a|\ntee|log|\nrun|b|\n");
  EXPECT_EQ(read("cat <<EOF >f\nrun no $X\nEOF\nrun yes"), "cat|\nrun|yes|\n");
}

TEST(ShellWords, TheEnvironmentOfACommandAndOfTheScript) {
  const ShellScript script = read_shell("export A=1\nB=2\nC=3 run x\nexport B", "job.sh");
  EXPECT_EQ(script.exported, (std::map<std::string, std::string>{{"A", "1"}, {"B", "2"}}));
  const ShellEnvironment& of_run = *script.commands.front().environment;
  EXPECT_EQ(of_run.size(), 2U);
  EXPECT_EQ(of_run.at("C").text, "3") << "of this command alone";
}

TEST(ShellWords, OnlyWhatIsExportedIs) {
  const ShellScript script = read_shell("declare A=1; export B=2; readonly C=3; export C", "job.sh");
  EXPECT_EQ(script.exported, (std::map<std::string, std::string>{{"B", "2"}, {"C", "3"}}));
  EXPECT_EQ(read("bash -c 'N=2; run $N'", {{"N", "8"}}), "run|8|\n");
}

TEST(ShellWords, BytesThatAreNoTextAreReadOver) {
  EXPECT_EQ(read(std::string("\0 y\nrun\0x", 9)), std::string("\0|y|\nrun\0x|\n", 12));
}

TEST(ShellWords, SlurmSaysHowManyThereAre) {
  EXPECT_EQ(read("#!/bin/bash\n#SBATCH --nodes=4 # four\n#SBATCH --ntasks-per-node 8\n#SBATCH --gres=gpu:8\n"
                 "run $SLURM_NNODES $SLURM_NTASKS $SLURM_GPUS_PER_NODE"),
            "run|4|32|8|\n");
}

TEST(ShellWords, WhatDoesNotCloseIsSaidWithItsPlace) {
  for (const auto& [script, place] : {std::pair{"run 'a", "job.sh:1:5"},
                                      {"run \"a", "job.sh:1:5"},
                                      {"A=(a", "job.sh:1:3"},
                                      {"run\nrun ${A", "job.sh:2:5"},
                                      {"for i in a; do x", "job.sh:1:1"}}) {
    try {
      (void)read_shell(script, "job.sh");
      ADD_FAILURE() << script;
    } catch (const InputError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with(place)) << error.what();
    }
  }
}

}  // namespace
}  // namespace tidemark::tests::shell_words_test
