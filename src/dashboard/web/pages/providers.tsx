import { useState } from "preact/hooks";
import { call } from "../api.ts";
import { Button, Choice, Field } from "../components/controls.tsx";
import { Confirm, Dialog, Form, toast } from "../components/dialog.tsx";
import { Badge, Empty, Notice, PageHead, Panel } from "../components/display.tsx";
import { type Column, Table } from "../components/table.tsx";
import { duration, integer } from "../format.ts";
import { useResource } from "../resource.ts";
import { HistoryDialog } from "./configuration-history.tsx";

/** A provider in the answer of GET /v1/admin/providers. */
interface Provider {
  readonly id: string;
  readonly type: string;
  readonly base_url?: string;
  readonly key_prefix?: string;
  readonly api_keys?: readonly { readonly key_prefix: string }[];
  readonly source: keyof typeof SOURCES;
  readonly version: number;
  readonly health: keyof typeof STATES;
  readonly models: number;
  readonly endpoints: readonly {
    readonly id: string;
    readonly circuit: "closed" | "open" | "half-open";
    readonly running: number;
    readonly latency_ms: number | null;
  }[];
}

const STATES = {
  ok: ["good", "Healthy"],
  degraded: ["warn", "Degraded"],
  down: ["bad", "Down"],
  unreachable: ["bad", "Unreachable"],
} as const;

const SOURCES = {
  environment: "Environment",
  file: "Configuration file",
  stored: "Added here",
  built_in: "Built in",
} as const;

/** The dialog that is open. */
type ProviderAction =
  | { readonly kind: "add" }
  | { readonly kind: "test" | "delete" | "edit" | "history"; readonly provider: Provider };

function columns(onAction: (action: ProviderAction) => void): Column<Provider>[] {
  return [
    {
      title: "Provider",
      cell: ({ id, type, base_url: url }) => (
        <span>
          <span class="strong">{id}</span>
          {(url || type !== id) && <span class="sub">{url || type}</span>}
        </span>
      ),
    },
    {
      title: "State",
      isCorner: true,
      cell: ({ health }) => <Badge tone={STATES[health][0]}>{STATES[health][1]}</Badge>,
    },
    {
      title: "Source",
      isSecondary: true,
      cell: (provider) => (
        <span>
          {SOURCES[provider.source]}
          <span class="sub code">{keysOf(provider)}</span>
        </span>
      ),
    },
    { title: "Models", isNumber: true, cell: ({ models }) => integer(models) },
    {
      title: "Running calls",
      isNumber: true,
      cell: ({ endpoints }) => integer(endpoints.reduce((sum, { running }) => sum + running, 0)),
    },
    {
      title: "Endpoints",
      cell: ({ endpoints }) => <Endpoints endpoints={endpoints} />,
    },
    {
      title: "Actions",
      isAction: true,
      cell: (provider) => (
        <span class="actions">
          <Button
            variant="quiet"
            label={`Test ${provider.id}`}
            onClick={() => onAction({ kind: "test", provider })}
          >
            Test
          </Button>
          {provider.source === "stored" &&
            STORED_ACTIONS.map(([kind, text]) => (
              <Button
                key={kind}
                variant="quiet"
                label={`${text} ${provider.id}`}
                onClick={() => onAction({ kind, provider })}
              >
                {text}
              </Button>
            ))}
        </span>
      ),
    },
  ];
}

const STORED_ACTIONS = [
  ["edit", "Edit"],
  ["history", "History"],
  ["delete", "Delete"],
] as const;

function keysOf({ key_prefix: prefix, api_keys: keys }: Provider): string {
  if (keys !== undefined) return `${keys.length} keys`;
  return prefix === undefined ? "" : `${prefix}…`;
}

/** The endpoints of a provider. Failing endpoints come first. The list is folded if none is failing. */
function Endpoints({ endpoints }: Pick<Provider, "endpoints">) {
  const open = endpoints.filter(({ circuit }) => circuit !== "closed");
  if (endpoints.length === 0) return <span class="quiet">None</span>;
  return (
    <details class="fold" open={open.length > 0}>
      <summary>
        {endpoints.length === 1 ? "1 endpoint" : `${integer(endpoints.length)} endpoints`}
        {open.length > 0 && <span class="bad">, {open.length} failing</span>}
      </summary>
      <ul class="plain">
        {[...open, ...endpoints.filter((item) => !open.includes(item))].map((endpoint) => (
          <li key={endpoint.id}>
            <span class="code">{endpoint.id}</span>{" "}
            {endpoint.circuit !== "closed" && <Badge tone="bad">circuit {endpoint.circuit}</Badge>}
            <span class="sub">
              {endpoint.latency_ms === null ? "No answer yet" : duration(endpoint.latency_ms)},{" "}
              {integer(endpoint.running)} running
            </span>
          </li>
        ))}
      </ul>
    </details>
  );
}

/** The configured providers, with their health as seen by the instance that answers. */
export function ProvidersPage() {
  const [action, setAction] = useState<ProviderAction>();
  const { data, error, reload } = useResource<{ instance_id: string; data: Provider[] }>(
    "v1/admin/providers",
  );
  return (
    <>
      <PageHead title="Providers">
        <Button onClick={reload}>Refresh</Button>
        <Button variant="primary" onClick={() => setAction({ kind: "add" })}>
          Add provider
        </Button>
      </PageHead>
      <Panel
        title="Providers and health"
        aside={
          data && (
            <span class="quiet" title={data.instance_id}>
              Health as seen by one instance
            </span>
          )
        }
        isFlush
      >
        <Table
          label="Providers"
          columns={columns(setAction)}
          rows={data?.data}
          error={error}
          keyOf={({ id }) => id}
          empty={
            <Empty title="No providers yet">
              <p>Add a provider to offer its models.</p>
            </Empty>
          }
        />
      </Panel>
      <ActionDialog action={action} onChanged={reload} onClose={() => setAction(undefined)} />
    </>
  );
}

interface ActionDialogProps {
  readonly action: ProviderAction | undefined;
  onChanged(): void;
  onClose(): void;
}

function ActionDialog({ action, onChanged, onClose }: ActionDialogProps) {
  if (action === undefined) return null;
  if (action.kind === "add")
    return <ProviderDialog edited={undefined} {...{ onChanged, onClose }} />;
  const { kind, provider } = action;
  if (kind === "edit") return <ProviderDialog edited={provider} {...{ onChanged, onClose }} />;
  if (kind === "test") return <TestDialog {...{ provider, onClose }} />;
  if (kind === "history") {
    return <HistoryDialog path="v1/admin/providers" entry={provider} {...{ onChanged, onClose }} />;
  }
  return (
    <Confirm
      title="Delete this provider?"
      action="Delete provider"
      onClose={onClose}
      onConfirm={async () => {
        const headers = { "if-match": `"${provider.version}"` };
        await call("DELETE", `v1/admin/providers/${provider.id}`, { headers });
        toast(`Deleted ${provider.id}.`);
        onClose();
        onChanged();
      }}
    >
      New requests no longer use <b>{provider.id}</b>. Running requests end as they began.
    </Confirm>
  );
}

interface ProviderDialogProps {
  readonly edited: Provider | undefined;
  onChanged(): void;
  onClose(): void;
}

/** The form for a provider. Only this form has the key, and only while it is open. */
function ProviderDialog({ edited, onChanged, onClose }: ProviderDialogProps) {
  const types = useResource<{ types: readonly string[] }>("settings/provider-types");
  const [type, setType] = useState(edited?.type ?? "openai-compatible");
  const [id, setId] = useState(edited?.id ?? "");
  const [baseUrl, setBaseUrl] = useState(edited?.base_url ?? "");
  const [key, setKey] = useState("");
  const save = async () => {
    const stated = {
      ...(baseUrl !== "" && { base_url: baseUrl }),
      ...(key !== "" && { api_key: key.trim() }),
    };
    if (edited === undefined) {
      await call("POST", "v1/admin/providers", { body: { id, type, ...stated } });
    } else {
      const headers = { "if-match": `"${edited.version}"` };
      await call("PATCH", `v1/admin/providers/${edited.id}`, { body: stated, headers });
    }
    toast(edited === undefined ? `Added ${id}.` : `Changed ${edited.id}.`);
    onClose();
    onChanged();
  };
  const names = types.data?.types ?? [type];
  return (
    <Dialog title={edited === undefined ? "Add a provider" : `Edit ${edited.id}`} onClose={onClose}>
      <Form submit={edited === undefined ? "Add" : "Save"} onCancel={onClose} onSubmit={save}>
        {edited === undefined && (
          <>
            <Choice
              label="Type"
              value={type}
              options={names.map((name) => [name, name] as const)}
              onChange={setType}
            />
            <Field
              label="Id"
              value={id}
              onInput={setId}
              isRequired
              placeholder={type}
              hint="The name of the provider in this gateway"
            />
          </>
        )}
        <Field
          label="Base URL"
          type="url"
          value={baseUrl}
          onInput={setBaseUrl}
          placeholder="Usual address of the type"
          hint="With the version segment, such as https://example.com/v1"
        />
        <Field
          label="API key"
          type="password"
          value={key}
          onInput={setKey}
          autocomplete="off"
          placeholder={edited?.key_prefix === undefined ? "" : `${edited.key_prefix}…`}
          hint="Stored encrypted, and never shown again"
        />
      </Form>
    </Dialog>
  );
}

/** The result of POST /v1/admin/providers/:id/test. */
interface TestResult {
  readonly ok: boolean;
  readonly latency_ms: number;
  readonly sent: readonly string[];
  readonly models?: readonly string[];
  readonly message?: string;
}

const SHOWN_MODELS = 5;

/** Tests a provider, and shows its answer. */
function TestDialog({ provider, onClose }: { readonly provider: Provider; onClose(): void }) {
  const [model, setModel] = useState("");
  const [result, setResult] = useState<TestResult>();
  const test = async () => {
    setResult(undefined);
    const body = model === "" ? {} : { model };
    setResult(await call("POST", `v1/admin/providers/${provider.id}/test`, { body }));
  };
  return (
    <Dialog title={`Test ${provider.id}`} onClose={onClose}>
      <Form submit="Run test" cancel="Close" onCancel={onClose} onSubmit={test}>
        <Field
          label="Model"
          value={model}
          onInput={setModel}
          suggestions={result?.models ?? []}
          placeholder="None"
          hint="The test requests the provider's list of models. If you name a model, it also sends a chat with one token of output, which the provider may charge."
        />
        {result !== undefined && <TestAnswer result={result} />}
      </Form>
    </Dialog>
  );
}

function TestAnswer({ result }: { readonly result: TestResult }) {
  const { ok, latency_ms: latencyMs, sent, models, message } = result;
  return (
    <Notice tone={ok ? "good" : "bad"}>
      <p>
        {ok
          ? `The provider answered after ${duration(latencyMs)}.`
          : (message ?? "The test failed.")}
      </p>
      <ul class="plain">
        {sent.map((request) => (
          <li key={request} class="code">
            {request}
          </li>
        ))}
      </ul>
      {models !== undefined && (
        <p>
          {integer(models.length)} models: {models.slice(0, SHOWN_MODELS).join(", ")}
          {models.length > SHOWN_MODELS && "…"}
        </p>
      )}
    </Notice>
  );
}
