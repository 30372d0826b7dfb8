import { expect } from "bun:test";
import type { Recipe } from "./recipe.ts";

const NAME = "GATEWAY_MAX_CONVERSATIONS";

/** Limits the conversations of an organization. */
export const setting: Recipe = {
  heading: "A setting",
  edits: [
    {
      path: "src/platform/config/variables.ts",
      change: [
        {
          before: "] as const satisfies readonly ConfigVariable[];\n\nexport type SettingName",
          insert: `  {
    name: "${NAME}",
    group: "organizations",
    default: "10000",
    meaning: "maximum number of conversations of an organization",
  },
`,
        },
      ],
    },
    {
      path: "src/platform/config/settings.ts",
      change: [
        {
          before: "  readonly shutdownGraceMs: number;\n",
          insert: `  /** The maximum number of conversations of one organization. */
  readonly maxConversations: number;
`,
        },
        {
          before: "    shutdownGraceMs: reader.integer(",
          insert: `    maxConversations: reader.integer("${NAME}", 0, 1_000_000),\n`,
        },
      ],
    },
    {
      path: "src/main/compose/responses.ts",
      change: [
        {
          after: "new Conversations({ ",
          insert: "maxConversations: config.maxConversations, ",
        },
      ],
    },
    {
      path: "src/inference/responses/conversations.ts",
      namedAs: "the code that uses the value",
      change: [
        {
          replace: `/** Conversations of one organization. Each is stored until it is deleted. */
const MAX_CONVERSATIONS = 10_000;

`,
          by: "",
        },
        {
          after: "interface ConversationsDependencies {\n",
          insert: `  /** Conversations of one organization. Each is stored until it is deleted. */
  readonly maxConversations: number;
`,
        },
        {
          replace: "    const { sql } = this.#dependencies;\n    if (!(await insertConversation(",
          by: "    const { sql, maxConversations } = this.#dependencies;\n    if (!(await insertConversation(",
        },
        {
          replace: "created, MAX_CONVERSATIONS)",
          by: "created, maxConversations)",
        },
        {
          replace: `\${MAX_CONVERSATIONS} conversations`,
          by: `\${maxConversations} conversations`,
        },
      ],
    },
  ],
  environment: { [NAME]: "1" },
  async prove({ call, read, refusal }) {
    const reference = read("docs/reference/configuration.md");
    expect(reference).toContain(`| \`${NAME}\` | \`10000\` | maximum number of conversations`);
    expect(await refusal({ [NAME]: "many" })).toContain(NAME);
    const create = () => call("POST", "/v1/conversations", { key: "secret", body: {} });
    expect(await create()).toMatchObject({ status: 200 });
    expect(await create()).toMatchObject({
      status: 403,
      body: { error: { message: "An organization can have at most 1 conversations." } },
    });
  },
};
