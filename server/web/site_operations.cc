// SPDX-License-Identifier: Apache-2.0

// What is not tasks: the page, the contract, metrics, health, the stream of events.

#include "embedded.h"
#include "metrics.h"
#include "operations.h"
#include "problem.h"

namespace verge::server::web {

namespace {

/// The page's own script and style are named by their digests; nothing else runs, and nothing is
/// fetched from elsewhere.
std::string page_headers() {
  return "Content-Security-Policy: default-src 'none'; script-src " +
         std::string(embedded::script_digest) + "; style-src " +
         std::string(embedded::style_digest) +
         "; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
         "frame-ancestors 'none'\r\n"
         "X-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n"
         "Cross-Origin-Opener-Policy: same-origin\r\n"
         "Cross-Origin-Resource-Policy: same-origin\r\n";
}

operation ready_made(http::response r) {
  operation op;
  op.what = operation::kind::answer;
  op.ready = std::move(r);
  return op;
}

/// Asks the broker, which answers only if the committer works.
operation probe(bool of_readiness) {
  operation op = ask(command(verb::stats), [of_readiness](reply& r) {
    if (r.what != answer::shown) refuse_reply(r);
    const bool draining = std::get<server_view>(*r.shown).draining;
    if (draining && of_readiness) {
      reply no;
      no.what = answer::draining;
      refuse_reply(no);
    }
    ordered_json j;
    j["status"] = draining ? "draining" : "ok";
    return json_response(j);
  });
  op.what = operation::kind::probe;
  return op;
}

}  // namespace

operation show_page(call&) {
  return ready_made({.status = 200,
                     .content_type = "text/html; charset=utf-8",
                     .headers = page_headers(),
                     .body = std::string(embedded::page)});
}

operation show_contract(call&) {
  return ready_made({.status = 200,
                     .content_type = "application/json",
                     .headers = {},
                     .body = std::string(embedded::openapi)});
}

operation show_metrics(call& c) {
  operation op =
      ask(command(verb::survey, tubes_in_metrics),
          [disk = c.limits().disk, signs = c.limits().condition](reply& r) {
            if (r.what != answer::shown) refuse_reply(r);
            const auto& v = std::get<survey_view>(*r.shown);
            return http::response{.status = 200,
                                  .content_type = "text/plain; version=0.0.4; charset=utf-8",
                                  .headers = {},
                                  .body = metrics_text(v, look_at_machine(disk), signs)};
          });
  op.of_all_tubes = true;
  return op;
}

operation show_health(call&) { return probe(false); }
operation show_readiness(call&) { return probe(true); }

operation stream_events(call&) {
  operation op;
  op.what = operation::kind::events;
  op.of_all_tubes = true;
  return op;
}

}  // namespace verge::server::web
