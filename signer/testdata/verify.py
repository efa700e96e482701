"""Verifies what the Go test sends, with the public Python libraries.

One JSON object a line on stdin: {"scheme", "secret", "headers", "body"}; one line
on stdout: "ok", or why not.
"""

import base64
import json
import sys

import stripe
from standardwebhooks.webhooks import Webhook

for line in sys.stdin:
    case = json.loads(line)
    body = base64.b64decode(case["body"])
    headers = case["headers"]
    try:
        if case["scheme"] == "standard":
            Webhook(case["secret"]).verify(body, headers, json_parse=False)
        elif case["scheme"] == "stripe":
            stripe.WebhookSignature.verify_header(body.decode(), headers["Stripe-Signature"], case["secret"], tolerance=300)
        else:
            raise ValueError("no Python library for " + case["scheme"])
        print("ok", flush=True)
    except Exception as err:  # whatever a library raises is its answer
        print(type(err).__name__ + ": " + str(err), flush=True)
