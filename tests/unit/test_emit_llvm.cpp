#include "compiler/emit/llvm.h"

#include <catch2/catch.hpp>

using namespace sparsertc;

TEST_CASE("placeholder") { REQUIRE(known_targets().size() > 1); }
