import { expect } from "bun:test";
import { until } from "../support/until.ts";
import { isSigned, LOCAL_DELIVERY, startReceiver } from "../webhooks/receiver.ts";
import type { Recipe } from "./recipe.ts";

const TYPE = "definition.deleted";

const DEFINITION = `import { Type } from "typebox";
import { defineEvent } from "./definition.ts";

export const definitionDeleted = defineEvent({
  type: "${TYPE}",
  summary: "A preset or guardrail was deleted.",
  payload: Type.Object(
    { definition_id: Type.String(), kind: Type.String() },
    { additionalProperties: false },
  ),
  sample: { definition_id: "pre_test", kind: "preset" },
});
`;

const SECTION = `
## \`${TYPE}\`

A preset or guardrail was deleted.

\`\`\`json
{
  "id": "evt_01a2…",
  "type": "${TYPE}",
  "created_at": "2026-01-01T12:00:00.000Z",
  "data": { "definition_id": "pre_test", "kind": "preset" }
}
\`\`\`
`;

/** Reports each deleted preset and guardrail to webhooks. */
export const event: Recipe = {
  heading: "An event",
  edits: [
    { path: "src/lib/events/definition-deleted.ts", change: DEFINITION },
    {
      path: "docs/reference/webhook-events.md",
      change: [
        {
          after: '"data": { "webhook_id": "whk_test", "host": "example.com" }\n}\n```\n',
          insert: SECTION,
        },
      ],
    },
    {
      path: "db/queries/definitions.ts",
      namedAs: "In the transaction of the change",
      change: [
        {
          before: 'import { recordChange } from "./changes.ts";\n',
          insert: `import { definitionDeleted } from "../../src/lib/events/definition-deleted.ts";
import { newId } from "../../src/lib/ids.ts";
import { insertOutboxEvent } from "./outbox.ts";
`,
        },
        {
          after: "if (deleted.count === 0) return false;\n",
          insert: `    const data = { definition_id: id, kind };
    await insertOutboxEvent(
      transaction,
      definitionDeleted.build(newId("evt"), organizationId, data),
    );
`,
        },
      ],
    },
    {
      path: "src/lib/events/event-types.ts",
      change: [
        {
          before: 'import type { EventDefinition } from "./definition.ts";\n',
          insert: 'import { definitionDeleted } from "./definition-deleted.ts";\n',
        },
        { before: "] as const;\n", insert: "  definitionDeleted,\n" },
      ],
    },
  ],
  environment: LOCAL_DELIVERY,
  async prove({ call }) {
    const receiver = startReceiver();
    try {
      const hook = await call("POST", "/v1/webhooks", {
        body: { url: receiver.url, events: [TYPE] },
      });
      expect(hook).toMatchObject({ status: 201, body: { events: [TYPE] } });
      const { body } = await call("POST", "/v1/presets", {
        body: { name: "short", system: "Be brief." },
      });
      expect(await call("DELETE", `/v1/presets/${body.id}`)).toMatchObject({ status: 200 });
      const delivery = await until("the event is delivered", () => receiver.received[0]);
      expect(isSigned(delivery, String(hook.body.secret))).toBeTrue();
      const data = { definition_id: body.id, kind: "preset" };
      expect(delivery.event).toMatchObject({ type: TYPE, data });
    } finally {
      await receiver.stop();
    }
    const { body: description } = await call("GET", "/openapi.json");
    expect(Object.keys(description.webhooks as object)).toContain(TYPE);
  },
};
