// A link as it would be elsewhere: slower and further away, for measurements on one machine.
#pragma once

namespace veil {

// Forwards what comes from `near` to `far`, each byte after `delay` at the least and all of them at
// `bytes_per_second` at the most; what comes back is handed on at once, since its sender shapes it.
// Returns when both sides have ended and all has arrived; owns both sockets.
void forward(int near, int far, double delay_seconds, double bytes_per_second);

}  // namespace veil
