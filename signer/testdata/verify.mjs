// Verifies what the Go test sends, with the public JavaScript libraries.
//
// One JSON object a line on stdin: {scheme, secret, headers, body}; one line on
// stdout: "ok", or why not.
import { createInterface } from "node:readline";
import { Webhook } from "standardwebhooks";
import { verify } from "@octokit/webhooks-methods";
import Stripe from "stripe";

const stripe = new Stripe("sk_test_unused");

for await (const line of createInterface({ input: process.stdin })) {
  const { scheme, secret, headers, body } = JSON.parse(line);
  const text = Buffer.from(body, "base64").toString("utf8");
  try {
    if (scheme === "standard") {
      try {
        new Webhook(secret).verify(text, headers);
      } catch (err) {
        if (!(err instanceof SyntaxError)) throw err; // it parses JSON after it has verified
      }
    } else if (scheme === "stripe") {
      stripe.webhooks.signature.verifyHeader(text, headers["Stripe-Signature"], secret, 300);
    } else if (!(await verify(secret, text, headers["X-Hub-Signature-256"]))) {
      throw new Error("verify answered false");
    }
    console.log("ok");
  } catch (err) {
    console.log(`${err.name}: ${err.message}`.replaceAll("\n", " "));
  }
}
