# The lit suite `codegen`. Beside lit's own substitutions (%s, %t, %S) a test can use
#
#   %sparsertc   the command under test
#   %not         LLVM's `not`: inverts an exit status (`%not --crash` for crashes)
#   %ptxas       NVIDIA's assembler; a test that uses it says `REQUIRES: ptxas`
#   %exit_code N command: succeeds if the command exits with exactly N
#   %python      the interpreter that runs lit
#   %data        tests/data, the inputs that the repository carries
#   %without_assembler command: hides the assemblers of this machine
#   %fake_nvjitlink, %fake_libcuda   stand-ins for SPARSERTC_LIBNVJITLINK and SPARSERTC_LIBCUDA
#   FileCheck    (also count, split-file, ...) as in LLVM's own tests
#
# and `%if ptxas %{ ... %}` for a single line that needs the assembler.
import os
import shutil
import sys

import lit.formats

config.name = "sparsertc"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".sir", ".test"]
config.excludes = ["Inputs"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = config.exec_root

config.environment["PATH"] = os.pathsep.join(
    [config.llvm_tools_dir, config.environment.get("PATH", os.defpath)]
)
# What a user has set must not decide what a test sees.
config.environment["LC_ALL"] = "C"
config.environment["SPARSERTC_CACHE_DIR"] = os.path.join(config.exec_root, "cache")
for variable in ("SPARSERTC_PTXAS", "SPARSERTC_LIBNVJITLINK", "SPARSERTC_LIBCUDA", "COLUMNS"):
    config.environment.pop(variable, None)

config.substitutions.append(("%sparsertc", config.sparsertc))
config.substitutions.append(("%not", os.path.join(config.llvm_tools_dir, "not")))
config.substitutions.append(("%data", config.test_data))
config.substitutions.append(("%fake_nvjitlink", config.fake_nvjitlink))
config.substitutions.append(("%fake_libcuda", config.fake_libcuda))
config.substitutions.append((
    "%without_assembler",
    "env SPARSERTC_PTXAS=/nowhere/ptxas SPARSERTC_LIBNVJITLINK=/nowhere/nvjitlink "
    "SPARSERTC_LIBCUDA=/nowhere/cuda",
))
config.substitutions.append(("%python", sys.executable))
exit_code = os.path.join(config.test_source_root, "command", "Inputs", "exit_code.py")
config.substitutions.append(("%exit_code", sys.executable + " " + exit_code))

config.environment.pop("CXX", None)
if shutil.which("c++"):
    config.available_features.add("host-compiler")
else:
    lit_config.note("SKIPPED: c++ not found, so residuals are not compiled for the CPU")

search = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/cuda/bin"])
ptxas = shutil.which("ptxas", path=search)
if ptxas:
    config.available_features.add("ptxas")
    config.substitutions.append(("%ptxas", ptxas))
else:
    lit_config.note("SKIPPED: ptxas not found, so the PTX is checked but not assembled")
