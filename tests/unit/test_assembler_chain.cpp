// Several assemblers as one: whose turn it is, and what is said when none can.
#include "compiler/assemble/assembler_chain.h"
#include "ir/error.h"
#include "tests/support/assemble_scene.h"

#include <catch2/catch.hpp>

#include <atomic>
#include <thread>

using namespace sparsertc;
using namespace sparsertc::testing;
using Catch::Contains;

namespace {

/// Does what it is told to.
struct Told {
  enum class Deed { works, absent, refuses, finds_fault } deed = Deed::works;
  int opened = 0;
  std::atomic<int> asked = 0;
};

class ToldAssembler : public Assembler {
public:
  ToldAssembler(std::string name, Told& told) : name_(std::move(name)), told_(told) {}
  std::string identity() const override { return name_ + " 1.0"; }
  Assembled assemble(const AssembleRequest& request) const override {
    ++told_.asked;
    if (told_.deed == Told::Deed::refuses)
      throw RuntimeError("assembling PTX for " + request.target, "unknown target", "buy another");
    if (told_.deed == Told::Deed::finds_fault)
      throw InternalError("assembling PTX: line 3: no");
    Assembled result;
    result.assembler = identity();
    return result;
  }

private:
  std::string name_;
  Told& told_;
};

AssemblerCandidate candidate(const std::string& name, Told& told) {
  return {name, [name, &told](std::vector<std::string>& refused) -> std::unique_ptr<Assembler> {
            ++told.opened;
            if (told.deed != Told::Deed::absent)
              return std::make_unique<ToldAssembler>(name, told);
            refused.push_back(name + ": not here");
            return nullptr;
          }};
}

struct Chain {
  Told first, second, third;
  std::vector<std::string> refused;
  std::unique_ptr<AssemblerChain> make(Told::Deed a, Told::Deed b, Told::Deed c) {
    first.deed = a;
    second.deed = b;
    third.deed = c;
    return AssemblerChain::find(
        {candidate("first", first), candidate("second", second), candidate("third", third)},
        refused);
  }
};

AssembleRequest request_of_nothing() {
  AssembleRequest request;
  request.target = "sm_90";
  return request;
}

} // namespace

TEST_CASE("chain: the first that can, does, and the others are not looked for") {
  Chain scene;
  const auto chain = scene.make(Told::Deed::works, Told::Deed::works, Told::Deed::works);
  REQUIRE(chain);
  CHECK(chain->identity() == "first 1.0");
  CHECK(chain->assemble(request_of_nothing()).assembler == "first 1.0");
  CHECK(chain->assemble(request_of_nothing()).assembler == "first 1.0");
  CHECK(scene.first.opened == 1);
  CHECK(scene.second.opened == 0);
  CHECK(scene.third.opened == 0);
}

TEST_CASE("chain: one that is absent or refuses is passed over") {
  Chain scene;
  const auto chain = scene.make(Told::Deed::absent, Told::Deed::refuses, Told::Deed::works);
  REQUIRE(chain);
  CHECK(chain->identity() == "second 1.0");
  CHECK(scene.third.opened == 0);
  CHECK(chain->assemble(request_of_nothing()).assembler == "third 1.0");
  CHECK(scene.first.opened == 1);
  CHECK(scene.second.asked == 1);
}

TEST_CASE("chain: fault with our PTX is told at once") {
  Chain scene;
  const auto chain = scene.make(Told::Deed::refuses, Told::Deed::finds_fault, Told::Deed::works);
  REQUIRE(chain);
  CHECK_THAT(message_of<InternalError>(*chain, request_of_nothing()), Contains("line 3: no"));
  CHECK(scene.third.asked == 0);
}

TEST_CASE("chain: where none is left it is said why of each") {
  Chain scene;
  const auto chain = scene.make(Told::Deed::refuses, Told::Deed::absent, Told::Deed::refuses);
  REQUIRE(chain);
  const std::string message = message_of<RuntimeError>(*chain, request_of_nothing());
  CHECK_THAT(message, Contains("error: assembling PTX for sm_90: no assembler takes it\n"
                               "  first: assembling PTX for sm_90: unknown target\n"
                               "    note: buy another\n"
                               "  second: not here\n"
                               "  third: assembling PTX for sm_90: unknown target"));
}

TEST_CASE("chain: where none is there, there is no chain") {
  Chain scene;
  CHECK_FALSE(scene.make(Told::Deed::absent, Told::Deed::absent, Told::Deed::absent));
  CHECK(scene.refused ==
        std::vector<std::string>{"first: not here", "second: not here", "third: not here"});
}

TEST_CASE("chain: one candidate alone speaks for itself") {
  Told told;
  told.deed = Told::Deed::refuses;
  std::vector<std::string> refused;
  const auto chain = AssemblerChain::find({candidate("only", told)}, refused);
  REQUIRE(chain);
  CHECK(message_of<RuntimeError>(*chain, request_of_nothing()) ==
        "error: assembling PTX for sm_90: unknown target\nnote: buy another");
}

TEST_CASE("chain: whoever stops it does not get the next assembler") {
  Chain scene;
  const auto chain = scene.make(Told::Deed::refuses, Told::Deed::works, Told::Deed::works);
  REQUIRE(chain);
  const std::atomic<bool> stop = true;
  AssembleRequest request = request_of_nothing();
  request.stop = &stop;
  CHECK_THAT(message_of<RuntimeError>(*chain, request), Contains("interrupted"));
  CHECK(scene.second.asked == 0);
}

TEST_CASE("chain: threads at once open each member once") {
  Chain scene;
  const auto chain = scene.make(Told::Deed::refuses, Told::Deed::works, Told::Deed::works);
  REQUIRE(chain);
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread)
      threads.emplace_back([&] {
        for (int i = 0; i < 50; ++i)
          wrong += chain->assemble(request_of_nothing()).assembler != "second 1.0";
      });
  }
  CHECK(wrong == 0);
  CHECK(scene.first.opened == 1);
  CHECK(scene.second.opened == 1);
  CHECK(scene.second.asked == 200);
}
