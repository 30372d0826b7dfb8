interface Part {
  /** A folder in the documentation's folder. Empty for the pages outside folders. */
  readonly folder: string;
  readonly title: string;
  /**
   * Paths of pages and folders, relative to the part and without an extension. Pages that are not
   * listed follow in the order of their titles.
   */
  readonly order: readonly string[];
}

const GUIDES = [
  ...["clients", "clients/sdks", "routing", "my-model-my-price"],
  ...["budgets-for-a-team", "rate-limits", "provider-limits"],
  ...["presets", "guardrails", "response-cache", "web-search"],
  ...[
    "webhooks",
    "alerts",
    "billing",
    "billing-stripe",
    "dashboard",
    "dashboard-objects",
    "playground",
    "people-and-teams",
    "single-sign-on",
  ],
  ...["operate", "operate/databases", "operate/single-container", "operate/several-instances"],
  ...["operate/load-balancers", "operate/kubernetes", "operate/systemd", "operate/monitoring"],
  ...["failure-drills", "migrate", "troubleshooting"],
];

const API = [
  ...["chat-completions", "chat-plugins", "audio-chats", "common-fields"],
  ...["responses", "responses-tools", "responses-storage", "responses-background"],
  ...["responses-openai", "responses-python-mcp", "messages"],
  ...["embeddings", "rerank", "moderations", "images", "speech", "transcriptions", "media-links"],
  ...["models", "files", "vector-stores", "batches", "fine-tuning"],
  ...[
    "keys",
    "budgets",
    "teams",
    "members",
    "scim",
    "organization",
    "credits",
    "statements",
    "usage",
    "requests",
  ],
  ...["webhooks", "alert-channels", "provider-keys", "presets", "guardrails", "cache"],
  ...["admin", "configuration", "identity-providers"],
];

const REFERENCE = [
  ...["api", ...API.map((name) => `api/${name}`)],
  ...["errors", "errors-administration", "headers", "webhook-events", "guardrail-rules"],
  ...["configuration", "configuration-file", "configuration-features", "configuration-providers"],
  ...["providers", "provider-models", "provider-fields"],
  ...["providers-anthropic", "providers-gemini", "providers-cohere", "providers-cloud"],
  ...["providers-self-hosted", "providers-audio", "providers-media"],
  ...["cli", "cli-configuration", "metrics", "sandbox", "glossary"],
];

const EXPLANATION = [
  ...["architecture", "where-is", "ledger", "security-model", "accounts", "scale", "comparison"],
];

/** The parts of the documentation, in order. */
export const PARTS: readonly Part[] = [
  { folder: "start", title: "Start", order: ["quickstart", "installation", "first-provider"] },
  { folder: "guides", title: "Guides", order: GUIDES },
  { folder: "reference", title: "Reference", order: REFERENCE },
  { folder: "explanation", title: "Explanation", order: EXPLANATION },
  { folder: "", title: "Project", order: [] },
];
