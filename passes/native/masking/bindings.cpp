#include "passes/native/masking/bindings.h"

#include <stdexcept>
#include <utility>

#include "passes/native/checks.h"
#include "passes/native/masking/claims.h"
#include "passes/native/masking/dependencies.h"
#include "passes/native/masking/sums.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace veil {

namespace {

void make_dependencies(Dependencies* self, const Column<int32_t>& source, int32_t size,
                       const Column<int64_t>& first, const Column<int32_t>& args,
                       size_t most_words) {
  for (const int32_t number : span(source)) {
    if (number < -1 || number >= size) throw nb::value_error("there is no such source");
  }
  Dependencies made = unlocked(
      [&] { return Dependencies(span(source), size, {first, args, source.size()}, most_words); });
  if (!made.is_whole()) throw std::length_error("sets of sources take more words than are given");
  new (self) Dependencies(std::move(made));
}

int32_t known(const Dependencies& all, int64_t node) {
  if (node < 0 || static_cast<size_t>(node) >= all.nodes()) throw nb::index_error("no such node");
  return static_cast<int32_t>(node);
}

bool has(const Dependencies& all, int64_t node, int32_t source) {
  return source >= 0 && source < all.size() && all.has(known(all, node), source);
}

bool have_order(const Dependencies& all, const Column<int32_t>& nodes, const Column<int64_t>& first,
                const Column<int32_t>& witnesses) {
  for (const int32_t node : span(nodes)) known(all, node);
  of_one_length(nodes.size(), {first.size() - 1});
  are_lists(first, witnesses, static_cast<size_t>(all.size()));
  return unlocked([&] { return all.have_order(span(nodes), span(first), span(witnesses)); });
}

nb::object reached_nodes(const Column<uint8_t>& start, const Column<uint8_t>& closed,
                         const Column<int64_t>& first, const Column<int32_t>& args) {
  of_one_length(start.size(), {closed.size()});
  return array(
      unlocked([&] { return reached(span(start), span(closed), {first, args, start.size()}); }));
}

// Arrays that a sum is read of, kept as long as it is.
struct GivenSums {
  Column<uint32_t> facts;
  Column<uint8_t> ops;
  Column<int32_t> tensors, attributes;
  Column<int64_t> numbers, elements;
  Column<uint8_t> is_same;
  Column<int32_t> same, same_here;
  Column<int64_t> first;
  Column<int32_t> args;
  Table signs, types;
  Column<int64_t> values;

  SummedColumns columns() const {
    of_one_length(facts.size(), {ops.size(), tensors.size(), attributes.size(), numbers.size(),
                                 elements.size(), is_same.size(), same.size(), same_here.size()});
    are_numbered(ops, signs.shape(0));
    are_numbered(tensors, types.shape(0));
    are_numbered(attributes, values.size());
    are_numbered(same, facts.size());
    are_numbered(same_here, facts.size());
    return {span(facts),           span(ops),
            span(tensors),         span(attributes),
            span(numbers),         span(elements),
            span(is_same),         span(same),
            span(same_here),       {first, args, facts.size()},
            structs<Signs>(signs), structs<SummedType>(types),
            span(values)};
  }
};

// That nodes have the operands that their operations add.
void are_summed(const SummedColumns& columns) {
  for (size_t i = 0; i < columns.facts.size(); ++i) {
    const Signs& signs = columns.signs[columns.ops[i]];
    const size_t count = columns.operands.of(i).size();
    bool sound = (!columns.is_same[i] || count > 0) && (signs.scales == 0 || count == 2);
    for (const auto& each : {signs.adds, signs.xors}) {
      if (each[0] != 0) sound = sound && count == (each[1] != 0 ? 2 : 1);
    }
    if (!sound) throw nb::value_error("a node lacks an operand");
  }
}

class BoundSums {
 public:
  BoundSums(GivenSums given, int64_t most)
      : given_(std::move(given)), sums_(given_.columns(), most) {
    are_summed(sums_.columns());
  }

  int32_t known(int64_t row) const {
    if (row < 0 || static_cast<size_t>(row) >= sums_.columns().facts.size()) {
      throw nb::index_error("no such node");
    }
    return static_cast<int32_t>(row);
  }

  nb::tuple of(int64_t start, bool behind_messages) const {
    const Sum found = sums_.of(known(start), behind_messages);
    nb::dict terms;
    for (const auto& [key, count] : found.terms) terms[nb::int_(key)] = count;
    return nb::make_tuple(terms, found.by_xor);
  }

  nb::object scaled(int64_t row) const {
    const auto [operand, count] = sums_.scaled(known(row));
    if (operand < 0) return nb::none();
    return nb::make_tuple(operand, count);
  }

  const Sums& sums() const { return sums_; }

 private:
  GivenSums given_;
  Sums sums_;
};

// What a coalition sees.
class BoundView {
 public:
  BoundView(const BoundSums& sums, const Dependencies& depends, Column<uint8_t> is_hidden,
            Column<int32_t> bits, Column<int32_t> makers, Column<int32_t> phases,
            Column<int32_t> selected, Column<int32_t> passed, Column<int32_t> whole,
            Column<int32_t> masked, Column<uint8_t> hides)
      : sums_(sums),
        depends_(depends),
        is_hidden_(std::move(is_hidden)),
        bits_(std::move(bits)),
        makers_(std::move(makers)),
        phases_(std::move(phases)),
        selected_(std::move(selected)),
        passed_(std::move(passed)),
        whole_(std::move(whole)),
        masked_(std::move(masked)),
        hides_(std::move(hides)) {
    const SummedColumns& columns = sums.sums().columns();
    const size_t nodes = columns.facts.size();
    of_one_length(nodes, {depends.nodes(), phases_.size(), selected_.size(), passed_.size(),
                          whole_.size(), masked_.size()});
    of_one_length(is_hidden_.size(), {bits_.size(), makers_.size()});
    are_numbered(bits_, static_cast<size_t>(depends.size()));
    are_numbered(makers_, nodes, -1);
    are_numbered(phases_, static_cast<size_t>(kPhases));
    for (const auto* walk : {&selected_, &passed_, &whole_, &masked_}) are_numbered(*walk, nodes);
    of_one_length(hides_.size(), {columns.signs.size()});
    for (size_t i = 0; i < nodes; ++i) {
      const int64_t number = columns.numbers[i];
      const bool is_draw = columns.is(static_cast<int32_t>(i), kDraw);
      if (is_draw && (number < 0 || static_cast<size_t>(number) >= is_hidden_.size())) {
        throw nb::value_error("there is no such draw");
      }
    }
  }

  nb::tuple claims(const Column<int64_t>& messages, const Column<int64_t>& keys,
                   const Column<int64_t>& first, const Column<int32_t>& draws) const {
    are_numbered(messages, sums_.sums().columns().facts.size());
    of_one_length(keys.size(), {first.size() - 1});
    are_lists(first, draws, is_hidden_.size());
    Claims found = unlocked([&] {
      const HiddenDraws hidden{span(is_hidden_), span(bits_), span(makers_), span(phases_),
                               span(selected_)};
      const Behind behind{span(passed_), span(whole_), span(masked_)};
      const Rooted rooted{span(keys), span(first), span(draws)};
      return claims_of(sums_.sums(), depends_, hidden, behind, rooted, span(hides_),
                       span(messages));
    });
    return nb::make_tuple(array(std::move(found.messages)), array(std::move(found.values)),
                          array(std::move(found.witnesses.first)),
                          array(std::move(found.witnesses.rows)));
  }

 private:
  const BoundSums& sums_;
  const Dependencies& depends_;
  Column<uint8_t> is_hidden_;
  Column<int32_t> bits_, makers_, phases_, selected_, passed_, whole_, masked_;
  Column<uint8_t> hides_;
};

void make_sums(BoundSums* self, Column<uint32_t> facts, Column<uint8_t> ops,
               Column<int32_t> tensors, Column<int32_t> attributes, Column<int64_t> numbers,
               Column<int64_t> elements, Column<uint8_t> is_same, Column<int32_t> same,
               Column<int32_t> same_here, Column<int64_t> first, Column<int32_t> args, Table signs,
               Table types, Column<int64_t> values, int64_t most) {
  new (self) BoundSums({facts, ops, tensors, attributes, numbers, elements, is_same, same,
                        same_here, first, args, signs, types, values},
                       most);
}

}  // namespace

void bind_masking(nb::module_& m) {
  m.def("reached", &reached_nodes, "start"_a, "closed"_a, "first"_a, "args"_a);
  nb::class_<Dependencies>(m, "Dependencies")
      .def("__init__", &make_dependencies, "source"_a, "size"_a, "first"_a, "args"_a,
           "most_words"_a)
      .def("has", &has, "node"_a, "source"_a)
      .def("is_empty",
           [](const Dependencies& all, int64_t node) { return all.is_empty(known(all, node)); })
      .def("words",
           [](const Dependencies& all, int64_t node) { return array(all.words(known(all, node))); })
      .def("have_order", &have_order, "nodes"_a, "first"_a, "witnesses"_a);
  nb::class_<BoundSums>(m, "Sums")
      .def("__init__", &make_sums, "facts"_a, "ops"_a, "tensors"_a, "attributes"_a, "numbers"_a,
           "elements"_a, "is_same"_a, "same"_a, "same_here"_a, "first"_a, "args"_a, "signs"_a,
           "types"_a, "values"_a, "most"_a)
      .def("of", &BoundSums::of, "start"_a, "behind_messages"_a)
      .def("scaled", &BoundSums::scaled, "row"_a);
  nb::class_<BoundView>(m, "View")
      .def(nb::init<const BoundSums&, const Dependencies&, Column<uint8_t>, Column<int32_t>,
                    Column<int32_t>, Column<int32_t>, Column<int32_t>, Column<int32_t>,
                    Column<int32_t>, Column<int32_t>, Column<uint8_t>>(),
           "sums"_a, "depends"_a, "is_hidden"_a, "bits"_a, "makers"_a, "phases"_a, "selected"_a,
           "passed"_a, "whole"_a, "masked"_a, "hides"_a, nb::keep_alive<1, 2>(),
           nb::keep_alive<1, 3>())
      .def("claims", &BoundView::claims, "messages"_a, "keys"_a, "first"_a, "draws"_a);
  m.attr("ROOTS") = nb::int_(static_cast<uint32_t>(kRoots));
  m.attr("PUBLIC") = nb::int_(static_cast<uint32_t>(kPublic));
  m.attr("OF_EACH") = nb::int_(static_cast<uint32_t>(kOfEach));
  m.attr("PHASES") = nb::int_(kPhases);
}

}  // namespace veil
