// The Python module veilgraph.passes._native: passes over the columns of a party-level program.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <utility>

#include "ir/party/native/arrays.h"
#include "passes/native/alignment.h"
#include "passes/native/arena.h"
#include "passes/native/checks.h"
#include "passes/native/facts.h"
#include "passes/native/forms.h"
#include "passes/native/fused/code.h"
#include "passes/native/fusion.h"
#include "passes/native/masking/bindings.h"
#include "passes/native/paths.h"
#include "passes/native/rounds.h"
#include "passes/ranges/native/magnitudes.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using veil::are_lists;
using veil::are_numbered;
using veil::array;
using veil::Column;
using veil::has_operands;
using veil::of_one_length;
using veil::span;
using veil::structs;
using veil::Table;
using veil::unlocked;

constexpr int64_t kMostParties = 64;
constexpr int64_t kMostBytes = int64_t{1} << 62;

nb::object live(const Column<uint32_t>& facts, const Column<int64_t>& first,
                const Column<int32_t>& args) {
  return array(
      unlocked([&] { return veil::live_nodes(span(facts), {first, args, facts.size()}); }));
}

void are_stages(const Column<int32_t>& stages) {
  for (const int32_t stage : span(stages)) {
    if (stage < 0 || stage > veil::kMostStages) throw nb::value_error("there is no such stage");
  }
}

void are_parties(const Column<int32_t>& parties) {
  for (const int32_t party : span(parties)) {
    if (party < 0 || party >= kMostParties) throw nb::value_error("there is no such party");
  }
}

nb::tuple align_messages(const Column<uint32_t>& facts, const Column<int32_t>& stages,
                         const Column<int32_t>& layers, const Column<int32_t>& kinds,
                         const Column<int32_t>& parties, const Column<int64_t>& bytes,
                         int64_t round_bytes, const Column<int64_t>& work,
                         const Column<uint8_t>& before, const Column<int64_t>& first,
                         const Column<int32_t>& args) {
  of_one_length(facts.size(), {stages.size(), layers.size(), kinds.size(), parties.size(),
                               bytes.size(), work.size(), before.size()});
  are_stages(stages);
  are_parties(parties);
  if (round_bytes < 1) throw nb::value_error("a round takes no time");
  veil::Aligned found = unlocked([&] {
    const veil::Operands operands(first, args, facts.size());
    has_operands(facts, operands);
    return veil::align_messages({span(facts), span(stages), operands},
                                {span(layers), span(kinds), span(parties), span(bytes), round_bytes,
                                 span(work), span(before)});
  });
  return nb::make_tuple(array(std::move(found.wanted)), array(std::move(found.before)));
}

nb::tuple batch_rounds(const Column<uint32_t>& facts, const Column<int32_t>& parties,
                       const Column<int32_t>& stages, const Column<int64_t>& wanted,
                       const Column<uint8_t>& before, const Column<int64_t>& first,
                       const Column<int32_t>& args) {
  of_one_length(facts.size(), {parties.size(), stages.size(), wanted.size(), before.size()});
  are_stages(stages);
  are_parties(parties);
  veil::Rounds found = unlocked([&] {
    const veil::Operands operands(first, args, facts.size());
    has_operands(facts, operands);
    return veil::batch_rounds({span(facts), span(stages), operands}, span(parties), span(wanted),
                              span(before));
  });
  return nb::make_tuple(array(std::move(found.live)), array(std::move(found.at)),
                        array(std::move(found.rounds)));
}

nb::tuple fuse_local(const Column<uint32_t>& facts, const Column<int32_t>& parties,
                     const Column<int32_t>& stages, const Column<int64_t>& elements,
                     const Column<uint8_t>& live, const Column<int64_t>& at,
                     const Column<int64_t>& first, const Column<int32_t>& args) {
  of_one_length(facts.size(),
                {parties.size(), stages.size(), elements.size(), live.size(), at.size()});
  veil::Fused found = unlocked([&] {
    const veil::Operands operands(first, args, facts.size());
    has_operands(facts, operands);
    return veil::fuse_local(
        {span(facts), span(parties), span(stages), span(elements), span(live), span(at), operands});
  });
  return nb::make_tuple(array(std::move(found.party)), array(std::move(found.at)),
                        array(std::move(found.fused)), array(std::move(found.nodes.first)),
                        array(std::move(found.nodes.rows)), array(std::move(found.reads.first)),
                        array(std::move(found.reads.rows)), array(std::move(found.stored)),
                        array(std::move(found.as_words)));
}

nb::tuple allocate(const Column<int64_t>& first, const Column<int64_t>& last,
                   const Column<int64_t>& bytes) {
  of_one_length(first.size(), {last.size(), bytes.size()});
  int64_t left = kMostBytes;  // of all blocks together
  for (size_t i = 0; i < first.size(); ++i) {
    const bool in_order = i == 0 || first(i - 1) <= first(i);
    if (!in_order || bytes(i) < 0 || bytes(i) > left) throw nb::value_error("no arena is so large");
    left -= bytes(i);
  }
  veil::Allocated found =
      unlocked([&] { return veil::allocate(span(first), span(last), span(bytes)); });
  return nb::make_tuple(array(std::move(found.offsets)), found.bytes);
}

nb::tuple forms_of(const Column<uint32_t>& facts, const Column<int32_t>& parties,
                   const Column<int32_t>& stages, const Column<int64_t>& elements,
                   const Column<int32_t>& ops, const Column<int32_t>& kinds,
                   const Column<int32_t>& attributes, const Column<int32_t>& tensors,
                   const Column<uint8_t>& stored, const Column<uint8_t>& unpacked,
                   const Column<int64_t>& first, const Column<int32_t>& args,
                   const Column<int32_t>& party, const Column<int64_t>& at,
                   const Column<int64_t>& begins, const Column<int32_t>& nodes) {
  of_one_length(facts.size(),
                {parties.size(), stages.size(), elements.size(), ops.size(), kinds.size(),
                 attributes.size(), tensors.size(), stored.size(), unpacked.size()});
  of_one_length(party.size(), {at.size(), begins.size() - 1});
  veil::Forms found = unlocked([&] {
    const veil::Operands operands(first, args, facts.size());
    has_operands(facts, operands);
    are_lists(begins, nodes, facts.size());
    return veil::forms_of({span(facts), span(parties), span(stages), span(elements), span(ops),
                           span(kinds), span(attributes), span(tensors), span(stored),
                           span(unpacked), operands, span(party), span(at), span(begins),
                           span(nodes)});
  });
  nb::list said;
  for (const std::u32string& form : found.said) {
    said.append(nb::bytes(form.data(), form.size() * sizeof(char32_t)));
  }
  return nb::make_tuple(array(std::move(found.form)), array(std::move(found.numbered.first)),
                        array(std::move(found.numbered.rows)), said);
}

nb::list fused_code(const Column<uint32_t>& facts, const Column<int32_t>& parties,
                    const Column<int32_t>& stages, const Column<int64_t>& elements,
                    const Column<uint8_t>& ops, const Column<int32_t>& tensors,
                    const Column<int32_t>& attributes, const Column<int64_t>& numbers,
                    const Column<int32_t>& keys, const Column<uint8_t>& stored,
                    const Column<uint8_t>& unpacked, const Column<int64_t>& first,
                    const Column<int32_t>& args, const Table& opcodes, const Table& types,
                    const Table& attributed, const Table& repeats, const Column<int32_t>& party,
                    const Column<int64_t>& at, const Column<int64_t>& begins,
                    const Column<int32_t>& nodes) {
  of_one_length(facts.size(),
                {parties.size(), stages.size(), elements.size(), ops.size(), tensors.size(),
                 attributes.size(), numbers.size(), keys.size(), stored.size(), unpacked.size()});
  of_one_length(party.size(), {at.size(), begins.size() - 1});
  const veil::Operands operands(first, args, facts.size());
  has_operands(facts, operands);
  are_lists(begins, nodes, facts.size());
  are_numbered(ops, opcodes.shape(0));
  are_numbered(tensors, types.shape(0));
  are_numbered(attributes, attributed.shape(0));
  const veil::FusedColumns columns{span(facts),
                                   span(parties),
                                   span(stages),
                                   span(elements),
                                   span(ops),
                                   span(tensors),
                                   span(attributes),
                                   span(numbers),
                                   span(keys),
                                   span(stored),
                                   span(unpacked),
                                   operands,
                                   structs<veil::Opcodes>(opcodes),
                                   structs<veil::TensorType>(types),
                                   structs<veil::Attributes>(attributed),
                                   structs<veil::Repeated>(repeats)};
  std::vector<veil::FusedAction> actions;
  for (size_t i = 0; i < party.size(); ++i) {
    const auto own = span(nodes).subspan(begins(i), begins(i + 1) - begins(i));
    actions.push_back({party(i), at(i), own});
  }
  std::vector<veil::FusedCode> programs =
      unlocked([&] { return veil::fused_code(columns, actions); });
  nb::list found;
  for (veil::FusedCode& each : programs) {
    found.append(nb::make_tuple(array(std::move(each.params)), array(std::move(each.streams)),
                                array(std::move(each.messages)), array(std::move(each.draws)),
                                array(std::move(each.drawn))));
  }
  return found;
}

void make_paths(veil::Paths* self, const Column<int64_t>& first, const Column<int32_t>& before,
                int64_t parties, const Column<int64_t>& first_option,
                const Column<int64_t>& waits) {
  of_one_length(first.size(), {first_option.size()});
  if (first.size() == 0) throw nb::value_error("options are those of other ops");
  const size_t ops = first.size() - 1;
  const auto options = span(first_option);
  bool sound = parties > 0 && parties <= kMostParties && options[0] == 0;
  for (size_t i = 0; i < ops; ++i) sound = sound && options[i] < options[i + 1];
  if (!sound || options[ops] * parties * parties != static_cast<int64_t>(waits.size())) {
    throw nb::value_error("options are those of other ops");
  }
  new (self) veil::Paths({first, before, ops}, static_cast<size_t>(parties), options, span(waits));
}

void are_options(const veil::Paths& all, size_t op, int64_t number) {
  if (op >= all.ops() || number < 0 || number >= all.options(op)) {
    throw nb::value_error("there is no such option");
  }
}

nb::object rounds(const veil::Paths& all, const Column<int64_t>& choices) {
  if (all.ops() == 0 || choices.size() % all.ops() != 0) {
    throw nb::value_error("choices are of other ops");
  }
  for (size_t i = 0; i < choices.size(); ++i) are_options(all, i % all.ops(), choices(i));
  return array(all.rounds(span(choices)));
}

nb::object changed(const veil::Paths& all, const Column<int64_t>& choice,
                   const Column<int64_t>& first, const Column<int32_t>& ops,
                   const Column<int64_t>& numbers) {
  of_one_length(all.ops(), {choice.size()});
  of_one_length(ops.size(), {numbers.size()});
  are_lists(first, ops, all.ops());
  for (size_t i = 0; i < choice.size(); ++i) are_options(all, i, choice(i));
  for (size_t i = 0; i < ops.size(); ++i) are_options(all, ops(i), numbers(i));
  for (size_t i = 0; i + 1 < first.size(); ++i) {
    const auto own = span(ops).subspan(first(i), first(i + 1) - first(i));
    if (own.empty() ||
        std::adjacent_find(own.begin(), own.end(), std::greater_equal{}) != own.end()) {
      throw nb::value_error("a change is of no ops in order");
    }
  }
  return array(
      unlocked([&] { return all.changed(span(choice), span(first), span(ops), span(numbers)); }));
}

nb::object extremes(const Column<float>& values) {
  return nb::cast(unlocked([&] { return veil::extremes(span(values)); }));
}

nb::tuple magnitudes(const Column<float>& values) {
  auto found = unlocked([&] { return veil::magnitudes(span(values)); });
  return nb::make_tuple(nb::cast(found.extremes), array(std::move(found.counts)));
}

}  // namespace

NB_MODULE(_native, m) {
  m.attr("ROOT") = nb::int_(static_cast<uint32_t>(veil::kRoot));
  m.attr("EARLY") = nb::int_(static_cast<uint32_t>(veil::kEarly));
  m.attr("SEND") = nb::int_(static_cast<uint32_t>(veil::kSend));
  m.attr("KEPT") = nb::int_(static_cast<uint32_t>(veil::kKept));
  m.attr("VIEW") = nb::int_(static_cast<uint32_t>(veil::kView));
  m.attr("LOADED") = nb::int_(static_cast<uint32_t>(veil::kLoaded));
  m.attr("REMADE") = nb::int_(static_cast<uint32_t>(veil::kRemade));
  m.attr("ELEMENTWISE") = nb::int_(static_cast<uint32_t>(veil::kElementwise));
  m.attr("FUSIBLE") = nb::int_(static_cast<uint32_t>(veil::kFusible));
  m.attr("RESHAPE") = nb::int_(static_cast<uint32_t>(veil::kReshape));
  m.attr("CONST") = nb::int_(static_cast<uint32_t>(veil::kConst));
  m.attr("DRAW") = nb::int_(static_cast<uint32_t>(veil::kDraw));
  m.attr("LOOKUP") = nb::int_(static_cast<uint32_t>(veil::kLookup));
  m.attr("CAST") = nb::int_(static_cast<uint32_t>(veil::kCast));
  m.attr("SOME_PLANES") = nb::int_(static_cast<uint32_t>(veil::kSomePlanes));
  m.attr("STACK") = nb::int_(static_cast<uint32_t>(veil::kStack));
  m.def("live", &live, "facts"_a, "first"_a, "args"_a);
  m.def("align_messages", &align_messages, "facts"_a, "stages"_a, "layers"_a, "kinds"_a,
        "parties"_a, "bytes"_a, "round_bytes"_a, "work"_a, "before"_a, "first"_a, "args"_a);
  m.def("batch_rounds", &batch_rounds, "facts"_a, "parties"_a, "stages"_a, "wanted"_a, "before"_a,
        "first"_a, "args"_a);
  m.def("fuse_local", &fuse_local, "facts"_a, "parties"_a, "stages"_a, "elements"_a, "live"_a,
        "at"_a, "first"_a, "args"_a);
  m.def("allocate", &allocate, "first"_a, "last"_a, "bytes"_a);
  m.def("forms_of", &forms_of, "facts"_a, "parties"_a, "stages"_a, "elements"_a, "ops"_a, "kinds"_a,
        "attributes"_a, "tensors"_a, "stored"_a, "unpacked"_a, "first"_a, "args"_a, "party"_a,
        "at"_a, "begins"_a, "nodes"_a);
  m.def("fused_code", &fused_code, "facts"_a, "parties"_a, "stages"_a, "elements"_a, "ops"_a,
        "tensors"_a, "attributes"_a, "numbers"_a, "keys"_a, "stored"_a, "unpacked"_a, "first"_a,
        "args"_a, "opcodes"_a, "types"_a, "attributed"_a, "repeats"_a, "party"_a, "at"_a,
        "begins"_a, "nodes"_a);
  m.def("extremes", &extremes, "values"_a);
  m.def("magnitudes", &magnitudes, "values"_a);
  veil::bind_masking(m);
  nb::class_<veil::Paths>(m, "Paths")
      .def("__init__", &make_paths, "first"_a, "before"_a, "parties"_a, "first_option"_a, "waits"_a)
      .def("rounds", &rounds, "choices"_a)
      .def("changed", &changed, "choice"_a, "first"_a, "ops"_a, "numbers"_a);
}
