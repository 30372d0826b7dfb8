import { useState } from "preact/hooks";
import { EVENT_TYPES } from "../../../lib/events/event-types.ts";
import { ApiError, call } from "../api.ts";
import { Button, Check, CopyText, Field, Link } from "../components/controls.tsx";
import { Confirm, Dialog, Form, perform, toast } from "../components/dialog.tsx";
import { Badge, Empty, Notice, PageHead, Panel, Time } from "../components/display.tsx";
import { ActionMenu } from "../components/menu.tsx";
import { type Column, Table } from "../components/table.tsx";
import { useResource } from "../resource.ts";
import { query, useNewDialog } from "../router.ts";
import { DeliveriesPage } from "./deliveries.tsx";

/** A webhook in the answer of GET /v1/webhooks. */
export interface Webhook {
  readonly id: string;
  readonly url: string;
  readonly events: readonly string[];
  readonly description: string | null;
  readonly enabled: boolean;
  readonly created_at: string;
  readonly disabled_at: string | null;
  readonly disabled_by: "request" | "failures" | null;
}

const MAX_LISTED = 1_000;

/** The list of webhooks, or one webhook with its deliveries. */
export function WebhooksPage() {
  const id = query.value.get("id");
  return id === null ? <WebhookList /> : <DeliveriesPage id={id} />;
}

function WebhookList() {
  const [edited, setEdited] = useState<Webhook | "new">();
  const [deleted, setDeleted] = useState<Webhook>();
  useNewDialog(() => setEdited("new"));
  const { data, error, reload } = useResource<{ data: Webhook[] }>(
    `v1/webhooks?limit=${MAX_LISTED}`,
  );
  const toggle = (webhook: Webhook) =>
    perform(
      webhook.enabled ? "Switched the webhook off." : "Switched the webhook on.",
      async () => {
        await call("PATCH", `v1/webhooks/${webhook.id}`, { body: { enabled: !webhook.enabled } });
        reload();
      },
    );
  return (
    <>
      <PageHead title="Webhooks">
        <Button needs="webhooks:manage" variant="primary" onClick={() => setEdited("new")}>
          Create webhook
        </Button>
      </PageHead>
      <Panel isFlush>
        <Table
          label="Webhooks"
          columns={columns({ onEdit: setEdited, onDelete: setDeleted, onToggle: toggle })}
          rows={data?.data}
          error={error}
          keyOf={(webhook) => webhook.id}
          empty={
            <Empty title="No webhooks yet">
              <p>
                The gateway sends signed events to your URL, for example about exhausted budgets,
                changed keys and failed requests.
              </p>
              <Button needs="webhooks:manage" onClick={() => setEdited("new")}>
                Create your first webhook
              </Button>
            </Empty>
          }
        />
      </Panel>
      {edited !== undefined && (
        <WebhookDialog
          edited={edited === "new" ? undefined : edited}
          onChanged={reload}
          onClose={() => setEdited(undefined)}
        />
      )}
      {deleted !== undefined && (
        <Confirm
          title="Delete this webhook?"
          action="Delete webhook"
          onClose={() => setDeleted(undefined)}
          onConfirm={async () => {
            await call("DELETE", `v1/webhooks/${deleted.id}`);
            toast("Deleted the webhook.");
            setDeleted(undefined);
            reload();
          }}
        >
          Events are no longer delivered to <span class="code">{deleted.url}</span>. Its deliveries
          are deleted.
        </Confirm>
      )}
    </>
  );
}

interface RowActions {
  onEdit(webhook: Webhook): void;
  onDelete(webhook: Webhook): void;
  onToggle(webhook: Webhook): void;
}

function columns({ onEdit, onDelete, onToggle }: RowActions): Column<Webhook>[] {
  return [
    {
      title: "URL",
      cell: ({ id, url, description }) => (
        <span>
          <Link page="webhooks" query={{ id }} class="strong code">
            {url}
          </Link>
          {description && <span class="sub">{description}</span>}
        </span>
      ),
    },
    { title: "State", isCorner: true, cell: (webhook) => <WebhookState webhook={webhook} /> },
    {
      title: "Events",
      isSecondary: true,
      isOptional: true,
      cell: ({ events }) =>
        events.includes("*") ? (
          "All events"
        ) : (
          <span title={events.join(", ")}>
            {events.slice(0, 2).join(", ")}
            {events.length > 2 && <span class="quiet"> and {events.length - 2} more</span>}
          </span>
        ),
    },
    {
      title: "Created",
      isSecondary: true,
      isOptional: true,
      cell: ({ created_at }) => <Time iso={created_at} form="date" />,
    },
    {
      title: "Actions",
      isAction: true,
      cell: (webhook) => (
        <>
          <Button
            needs="webhooks:manage"
            variant="quiet"
            label={`Edit ${webhook.url}`}
            onClick={() => onEdit(webhook)}
          >
            Edit
          </Button>
          <ActionMenu
            label={`Actions for ${webhook.url}`}
            items={[
              {
                label: webhook.enabled ? "Switch off" : "Switch on",
                icon: "power",
                needs: "webhooks:manage",
                onSelect: () => onToggle(webhook),
              },
              {
                label: "Delete",
                icon: "trash-2",
                isDanger: true,
                needs: "webhooks:manage",
                onSelect: () => onDelete(webhook),
              },
            ]}
          />
        </>
      ),
    },
  ];
}

export function WebhookState({ webhook }: { readonly webhook: Webhook }) {
  if (webhook.enabled) return <Badge tone="good">On</Badge>;
  return webhook.disabled_by === "failures" ? (
    <Badge tone="bad">Off after failures</Badge>
  ) : (
    <Badge>Off</Badge>
  );
}

interface WebhookDialogProps {
  readonly edited: Webhook | undefined;
  onChanged(): void;
  onClose(): void;
}

/** Creates a webhook and shows its secret once, or edits a webhook. */
function WebhookDialog({ edited, onChanged, onClose }: WebhookDialogProps) {
  const [url, setUrl] = useState(edited?.url ?? "");
  const [description, setDescription] = useState(edited?.description ?? "");
  const [isAll, setAll] = useState(edited?.events.includes("*") ?? true);
  const [events, setEvents] = useState(edited?.events.filter((event) => event !== "*") ?? []);
  const [secret, setSecret] = useState<string>();
  const save = async () => {
    if (!isAll && events.length === 0) {
      throw new ApiError(400, "invalid_body", "Choose at least one event.", "events");
    }
    const body = { url, description: description || null, events: isAll ? ["*"] : events };
    if (edited === undefined) {
      const created = await call<{ secret: string }>("POST", "v1/webhooks", { body });
      setSecret(created.secret);
    } else {
      await call("PATCH", `v1/webhooks/${edited.id}`, { body });
      toast("Updated the webhook.");
      onClose();
    }
    onChanged();
  };
  if (secret !== undefined) {
    return <SecretDialog secret={secret} onClose={onClose} />;
  }
  return (
    <Dialog title={edited === undefined ? "Create a webhook" : "Edit webhook"} onClose={onClose}>
      <Form submit={edited === undefined ? "Create" : "Save"} onCancel={onClose} onSubmit={save}>
        <Field
          label="URL"
          param="url"
          type="url"
          value={url}
          onInput={setUrl}
          isRequired
          placeholder="https://example.com/gateway"
        />
        <Field
          label="Description"
          param="description"
          value={description}
          onInput={setDescription}
        />
        <Check label="Send all events" isChecked={isAll} onChange={setAll} />
        {!isAll && (
          <fieldset class="checks">
            <legend class="unseen">Events</legend>
            {EVENT_TYPES.map((type) => (
              <Check
                key={type}
                label={type}
                isChecked={events.includes(type)}
                onChange={(isOn) =>
                  setEvents(isOn ? [...events, type] : events.filter((event) => event !== type))
                }
              />
            ))}
          </fieldset>
        )}
      </Form>
    </Dialog>
  );
}

interface SecretDialogProps {
  readonly secret: string;
  onClose(): void;
}

export function SecretDialog({ secret, onClose }: SecretDialogProps) {
  return (
    <Dialog title="Signing secret" onClose={onClose}>
      <Notice tone="warn">
        Copy the secret now. It is shown only once. Your receiver verifies signatures with it.
      </Notice>
      <CopyText text={secret} label="signing secret" />
    </Dialog>
  );
}
