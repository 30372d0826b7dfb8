import { Type } from "typebox";
import { defineEvent } from "./definition.ts";

/** The SQL function emit_webhook_disabled writes it. */
export const webhookDisabled = defineEvent({
  type: "webhook.disabled",
  summary:
    "A webhook was disabled because six attempts to deliver one event failed. Only other webhooks get the event.",
  payload: Type.Object(
    {
      webhook_id: Type.String(),
      host: Type.String({ description: "Host of the URL. The rest may hold a secret." }),
    },
    { additionalProperties: false },
  ),
  sample: { webhook_id: "whk_test", host: "example.com" },
});
