#include "runtime/native/links/link_bindings.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>

#include <cerrno>
#include <memory>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/native/links/links.h"
#include "runtime/native/links/shaping.h"
#include "runtime/native/phase.h"
#include "runtime/native/python_buffers.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace veil {
namespace {

// Whether a signal's Python handler has raised something, which is then this thread's exception.
bool interrupted() {
  const nb::gil_scoped_acquire lock;
  return PyErr_CheckSignals() != 0;
}

void translate(const std::exception_ptr& caught, void*) {
  try {
    std::rethrow_exception(caught);
  } catch (const std::system_error& error) {
    const int number = error.code().value();
    PyErr_SetObject(PyExc_OSError, nb::make_tuple(number, error.code().message()).ptr());
  }
}

// One connection

std::shared_ptr<Stream> plain(int socket) { return std::make_shared<Stream>(socket); }

std::shared_ptr<TlsTerms> tls_terms(std::shared_ptr<OpenSsl> openssl, nb::bytes pinned,
                                    const std::string& certificate, const std::string& key,
                                    bool dialed) {
  const std::span<const uint8_t> der{static_cast<const uint8_t*>(pinned.data()), pinned.size()};
  const nb::gil_scoped_release unlocked;
  const Identity identity{certificate, key};
  return std::make_shared<TlsTerms>(std::move(openssl), der, identity, dialed);
}

std::shared_ptr<Stream> secured(std::shared_ptr<TlsTerms> terms, int socket, double seconds,
                                uint64_t records_per_key) {
  return Stream::secured(std::move(terms), socket, seconds, records_per_key);
}

// As Python's `selectors` has them: 1 to read, 2 to write; 0 when it is done. Keeps Python's lock:
// to have it back could take longer than a step.
int shake_hands(Stream& stream) { return static_cast<int>(stream.shake_hands()); }

[[noreturn]] void refuse(const Stream& stream, Stream::Status status) {
  if (status == Stream::Status::kChanged) throw TlsError(stream.reason());
  const int number = status == Stream::Status::kSilent ? ETIMEDOUT : ECONNRESET;
  throw std::system_error(number, std::generic_category());
}

// What is there, without waiting: none where nothing is yet.
std::optional<nb::bytes> receive_now(Stream& stream, size_t count) {
  std::vector<uint8_t> content(count);
  const Stream::Moved moved = stream.read(content.data(), count, Stream::Wait::kNo);
  if (moved.status == Stream::Status::kNotNow || moved.status == Stream::Status::kInterrupted) {
    return std::nullopt;
  }
  if (moved.status == Stream::Status::kClosed) return nb::bytes("", 0);
  if (moved.status != Stream::Status::kMoved) refuse(stream, moved.status);
  return nb::bytes(content.data(), moved.bytes);
}

void send_all(Stream& stream, nb::bytes content) {
  const auto* data = static_cast<const uint8_t*>(content.data());
  for (size_t at = 0; at < content.size();) {
    const Stream::Moved moved = stream.write(data + at, content.size() - at);
    if (moved.status != Stream::Status::kMoved) refuse(stream, moved.status);
    at += moved.bytes;
  }
}

// All of them

std::unique_ptr<Links> join(nb::dict streams, uint32_t parties, uint64_t large_bytes) {
  std::vector<std::unique_ptr<FramedStream>> links;
  for (auto [peer, stream] : streams) {
    links.push_back(std::make_unique<FramedStream>(nb::cast<uint32_t>(peer), parties,
                                                   nb::cast<std::shared_ptr<Stream>>(stream)));
  }
  return std::make_unique<Links>(std::move(links), large_bytes, interrupted);
}

uint32_t known(const Links& links, nb::handle peer) {
  const auto index = nb::cast<uint32_t>(peer);
  if (!links.has(index)) throw nb::key_error("no link to this peer");
  return index;
}

std::optional<Fault> exchange(Links& links, nb::dict sends, nb::dict receives, double patience,
                              double least_bytes_per_second) {
  PythonBuffers buffers;
  std::vector<Sent> sent;
  std::vector<Awaited> awaited;
  for (auto [peer, buffer] : sends) {
    sent.push_back({known(links, peer), {{buffers.readable(buffer), 0}}});
  }
  for (auto [peer, buffer] : receives) {
    awaited.push_back({known(links, peer), {buffers.writable(buffer)}});
  }
  try {
    const nb::gil_scoped_release unlocked;
    return links.exchange(sent, awaited, {patience, least_bytes_per_second});
  } catch (const Interrupted&) {
    throw nb::python_error();
  }
}

// A round that goes bit by bit, and comes again; its buffers are held as long as it is.
class LongRound {
 public:
  LongRound(Links& links, nb::dict sends, nb::dict receives) : links_(links) {
    for (auto [peer, parts] : sends) {
      Sent& sent = sent_.emplace_back(known(links, peer), std::vector<Piece>{});
      for (auto part : parts) {
        const auto [buffer, due] = nb::cast<std::tuple<nb::object, uint32_t>>(part);
        sent.pieces.push_back({buffers_.readable(buffer), due});
      }
    }
    for (auto [peer, buffer] : receives) {
      awaited_.push_back({known(links, peer), {buffers_.writable(buffer)}});
    }
  }

  std::optional<Fault> begin(double patience, double least_bytes_per_second) {
    const nb::gil_scoped_release unlocked;
    return links_.begin(sent_, awaited_, {patience, least_bytes_per_second});
  }

  bool wait_for(nb::handle peer, uint64_t bytes) {
    const uint32_t index = known(links_, peer);
    try {
      const nb::gil_scoped_release unlocked;
      return links_.wait_for(index, bytes);
    } catch (const Interrupted&) {
      throw nb::python_error();
    }
  }

  std::optional<Fault> finish() {
    try {
      const nb::gil_scoped_release unlocked;
      return links_.finish();
    } catch (const Interrupted&) {
      throw nb::python_error();
    }
  }

  void abandon() {
    const nb::gil_scoped_release unlocked;
    links_.abandon();
  }

  bool release(uint32_t due) { return links_.release(due); }

 private:
  Links& links_;
  PythonBuffers buffers_;
  std::vector<Sent> sent_;
  std::vector<Awaited> awaited_;
};

// A phase of them, on an interpreter

std::vector<Place> places(nb::list pieces) {
  using Fields = std::tuple<uint32_t, uint64_t, uint64_t, uint64_t, int64_t>;
  std::vector<Place> found;
  for (auto piece : pieces) {
    const auto [peer, offset, bytes, step, elements] = nb::cast<Fields>(piece);
    found.push_back({peer, offset, bytes, step, elements});
  }
  return found;
}

void add(Phase& phase, uint64_t first, uint64_t last, nb::list sends, nb::list receives) {
  phase.add(first, last, places(sends), places(receives));
}

nb::tuple run(Phase& phase, uint32_t run, double patience, double least_bytes_per_second) {
  Phase::End end;
  try {
    const nb::gil_scoped_release unlocked;
    end = phase.run(run, {patience, least_bytes_per_second});
  } catch (const Interrupted&) {
    throw nb::python_error();
  }
  return nb::make_tuple(end.fault, end.range, end.rounds, end.network_nanoseconds);
}

// What was counted

nb::dict sent_bytes(const Links& links) {
  nb::dict counted;
  for (const auto& link : links.all()) counted[nb::int_(link->peer())] = link->sent_bytes;
  return counted;
}

nb::dict received_bytes(const Links& links) {
  nb::dict counted;
  for (const auto& link : links.all()) counted[nb::int_(link->peer())] = link->received_bytes;
  return counted;
}

nb::tuple times(const Links& links) {
  StreamTimes sum;
  for (const auto& link : links.all()) {
    const StreamTimes& one = link->stream().times();
    sum.waiting += one.waiting;
    sum.sending += one.sending;
    sum.encryption += one.encryption;
  }
  return nb::make_tuple(sum.waiting, sum.sending, sum.encryption);
}

void reset_counters(Links& links) {
  for (const auto& link : links.all()) {
    link->sent_bytes = link->received_bytes = 0;
    link->stream().reset_times();
  }
}

void bind_fault(nb::module_& module) {
  nb::enum_<Fault::Kind>(module, "FaultKind")
      .value("SILENT", Fault::Kind::kSilent)
      .value("LATE", Fault::Kind::kLate)
      .value("CLOSED", Fault::Kind::kClosed)
      .value("BROKEN", Fault::Kind::kBroken)
      .value("CHANGED", Fault::Kind::kChanged)
      .value("STOPPED", Fault::Kind::kStopped)
      .value("UNEXPECTED", Fault::Kind::kUnexpected);
  nb::class_<Fault>(module, "Fault")
      .def_ro("kind", &Fault::kind)
      .def_ro("peer", &Fault::peer)
      .def_ro("blamed", &Fault::blamed)
      .def_ro("reason", &Fault::reason)
      .def_ro("number", &Fault::number)
      .def_ro("bytes", &Fault::bytes)
      .def_ro("due_number", &Fault::due_number)
      .def_ro("due_bytes", &Fault::due_bytes);
}

}  // namespace

void bind_links(nb::module_& module) {
  nb::register_exception_translator(translate);
  nb::exception<TlsError>(module, "TlsError", PyExc_OSError);
  nb::class_<OpenSsl>(module, "OpenSsl")
      .def(nb::init<const std::string&>(), "module"_a)
      .def_prop_ro("version", [](const OpenSsl& openssl) { return openssl.version(0); });
  nb::class_<TlsTerms>(module, "TlsTerms")
      .def(nb::new_(&tls_terms), "openssl"_a, "pinned"_a, "certificate"_a, "key"_a, "dialed"_a);
  nb::class_<Stream>(module, "Stream")
      .def_static("plain", &plain, "socket"_a)
      .def_static("secured", &secured, "terms"_a, "socket"_a, "seconds"_a, "records_per_key"_a)
      .def("shake_hands", &shake_hands)
      .def("recv_now", &receive_now, "count"_a)
      .def("sendall", &send_all, "content"_a)
      .def("close", &Stream::close)
      .def("fileno", &Stream::descriptor)
      .def_prop_ro("protocol", &Stream::protocol)
      .def_prop_ro("cipher", &Stream::cipher);
  module.def("forward", &forward, "near"_a, "far"_a, "delay_seconds"_a, "bytes_per_second"_a,
             nb::call_guard<nb::gil_scoped_release>());
  bind_fault(module);
  nb::class_<Links>(module, "Links")
      .def(nb::new_(&join), "streams"_a, "parties"_a, "large_bytes"_a)
      .def("exchange", &exchange, "sends"_a, "receives"_a, "patience"_a, "least_bytes_per_second"_a)
      .def("stop", &Links::stop, "reason"_a)
      .def("close", &Links::close)
      .def("reset_counters", &reset_counters)
      .def_prop_ro("sent_bytes", &sent_bytes)
      .def_prop_ro("received_bytes", &received_bytes)
      .def_prop_ro("times", &times);
  nb::class_<LongRound>(module, "LongRound")
      .def(nb::init<Links&, nb::dict, nb::dict>(), "links"_a, "sends"_a, "receives"_a,
           nb::keep_alive<1, 2>())
      .def("begin", &LongRound::begin, "patience"_a, "least_bytes_per_second"_a)
      .def("release", &LongRound::release, "due"_a)
      .def("wait_for", &LongRound::wait_for, "peer"_a, "bytes"_a)
      .def("finish", &LongRound::finish)
      .def("abandon", &LongRound::abandon);
  nb::class_<Phase>(module, "Phase")
      .def(nb::init<Interpreter&, Links&>(), "interpreter"_a, "links"_a, nb::keep_alive<1, 2>(),
           nb::keep_alive<1, 3>())
      .def("add", &add, "first"_a, "last"_a, "sends"_a, "receives"_a)
      .def("run", &run, "run"_a, "patience"_a, "least_bytes_per_second"_a);
}

}  // namespace veil
