import { useState } from "preact/hooks";
import { type AlertKind, CHAT_TYPES, type ChatType } from "../../../../lib/alerts.ts";
import { ApiError, call } from "../../api.ts";
import { Button, Choice, Field, Link } from "../../components/controls.tsx";
import { Confirm, Dialog, Form, perform, toast } from "../../components/dialog.tsx";
import { Empty, Panel } from "../../components/display.tsx";
import { ActionMenu } from "../../components/menu.tsx";
import { type Column, Table } from "../../components/table.tsx";
import { useResource } from "../../resource.ts";
import { useNewDialog } from "../../router.ts";
import {
  AlertBadge,
  AlertKinds,
  type AlertOutcome,
  alertTitles,
  LastAlert,
  sendTest,
} from "../alert-parts.tsx";

/** A channel in the answer of GET /v1/alert_channels. */
interface AlertChannel extends AlertOutcome {
  readonly id: string;
  readonly name: string;
  readonly type: ChatType;
  readonly host: string;
  readonly alerts: readonly AlertKind[];
}

const TYPES: Readonly<Record<ChatType, { readonly title: string; readonly url: string }>> = {
  slack: { title: "Slack", url: "https://hooks.slack.com/services/…" },
  teams: { title: "Microsoft Teams", url: "https://….logic.azure.com/workflows/…" },
  discord: { title: "Discord", url: "https://discord.com/api/webhooks/…" },
};

const MAX_LISTED = 100;

/** The channels of the organization for alerts. */
export function AlertsSection() {
  const [edited, setEdited] = useState<AlertChannel | "new">();
  const [deleted, setDeleted] = useState<AlertChannel>();
  useNewDialog(() => setEdited("new"));
  const { data, error, reload } = useResource<{ data: AlertChannel[] }>(
    `v1/alert_channels?limit=${MAX_LISTED}`,
  );
  const toggle = ({ id, name, enabled }: AlertChannel) =>
    perform(`Switched ${name} ${enabled ? "off" : "on"}.`, async () => {
      await call("PATCH", `v1/alert_channels/${id}`, { body: { enabled: !enabled } });
      reload();
    });
  return (
    <Panel
      title="Alert channels"
      aside={
        <Button needs="webhooks:manage" variant="primary" onClick={() => setEdited("new")}>
          Create channel
        </Button>
      }
      isFlush
    >
      <p class="panel-lead">
        Channels of Slack, Microsoft Teams or Discord get alerts of the organization. Choose alerts
        by mail for yourself under <Link page="account">Account</Link>.
      </p>
      <Table
        label="Alert channels"
        columns={columns({ onEdit: setEdited, onDelete: setDeleted, onToggle: toggle })}
        rows={data?.data}
        error={error}
        keyOf={({ id }) => id}
        empty={
          <Empty title="No alert channels yet">
            <p>
              Get a message in your chat when the balance is low, or when a budget, payment or job
              needs attention.
            </p>
            <Button needs="webhooks:manage" onClick={() => setEdited("new")}>
              Create your first channel
            </Button>
          </Empty>
        }
      />
      {edited !== undefined && (
        <ChannelDialog
          edited={edited === "new" ? undefined : edited}
          onChanged={reload}
          onClose={() => setEdited(undefined)}
        />
      )}
      {deleted !== undefined && (
        <Confirm
          title="Delete this channel?"
          action="Delete channel"
          onClose={() => setDeleted(undefined)}
          onConfirm={async () => {
            await call("DELETE", `v1/alert_channels/${deleted.id}`);
            toast(`Deleted ${deleted.name}.`);
            setDeleted(undefined);
            reload();
          }}
        >
          <b>{deleted.name}</b> gets no more alerts.
        </Confirm>
      )}
    </Panel>
  );
}

interface RowActions {
  onEdit(channel: AlertChannel): void;
  onDelete(channel: AlertChannel): void;
  onToggle(channel: AlertChannel): void;
}

function columns({ onEdit, onDelete, onToggle }: RowActions): Column<AlertChannel>[] {
  const needs = "webhooks:manage";
  return [
    {
      title: "Name",
      cell: ({ name, type, host }) => (
        <span>
          <b>{name}</b>
          <span class="sub">
            {TYPES[type].title} · {host}
          </span>
        </span>
      ),
    },
    { title: "State", isCorner: true, cell: (channel) => <AlertBadge outcome={channel} /> },
    { title: "Alerts", isSecondary: true, cell: ({ alerts }) => alertTitles(alerts) },
    { title: "Last sent", cell: (channel) => <LastAlert outcome={channel} /> },
    {
      title: "Actions",
      isAction: true,
      cell: (channel) => (
        <>
          <Button
            needs={needs}
            variant="quiet"
            label={`Send test to ${channel.name}`}
            onClick={() => void sendTest(`v1/alert_channels/${channel.id}/test`)}
          >
            Send test
          </Button>
          <ActionMenu
            label={`Actions for ${channel.name}`}
            items={[
              { label: "Edit", icon: "pencil", needs, onSelect: () => onEdit(channel) },
              {
                label: channel.enabled ? "Switch off" : "Switch on",
                ...{ icon: "power", needs, onSelect: () => onToggle(channel) },
              },
              {
                label: "Delete",
                ...{ icon: "trash-2", isDanger: true, needs, onSelect: () => onDelete(channel) },
              },
            ]}
          />
        </>
      ),
    },
  ];
}

interface ChannelDialogProps {
  readonly edited: AlertChannel | undefined;
  onChanged(): void;
  onClose(): void;
}

function ChannelDialog({ edited, onChanged, onClose }: ChannelDialogProps) {
  const [name, setName] = useState(edited?.name ?? "");
  const [type, setType] = useState<ChatType>(edited?.type ?? "slack");
  const [url, setUrl] = useState("");
  const [alerts, setAlerts] = useState<readonly AlertKind[]>(
    edited?.alerts ?? ["balance", "budgets", "payments"],
  );
  const save = async () => {
    if (alerts.length === 0) {
      throw new ApiError(400, "invalid_body", "Choose at least one kind of alert.", "alerts");
    }
    if (edited === undefined) {
      await call("POST", "v1/alert_channels", { body: { name, type, url, alerts } });
      toast(`Created ${name}.`);
    } else {
      const body = { name, alerts, ...(url !== "" && { url }) };
      await call("PATCH", `v1/alert_channels/${edited.id}`, { body });
      toast(`Updated ${name}.`);
    }
    onChanged();
    onClose();
  };
  const isNew = edited === undefined;
  return (
    <Dialog title={isNew ? "Create an alert channel" : `Edit ${edited.name}`} onClose={onClose}>
      <Form submit={isNew ? "Create" : "Save"} onCancel={onClose} onSubmit={save}>
        <Field label="Name" param="name" value={name} onInput={setName} isRequired />
        {isNew && (
          <Choice
            label="Service"
            value={type}
            options={CHAT_TYPES.map((one) => [one, TYPES[one].title] as const)}
            onChange={(value) => setType(value as ChatType)}
          />
        )}
        <Field
          label="Webhook URL"
          type="url"
          param="url"
          value={url}
          onInput={setUrl}
          isRequired={isNew}
          placeholder={TYPES[type].url}
          hint={
            isNew
              ? "URL of the incoming webhook. It is stored encrypted and never shown again."
              : `Leave it empty to keep the URL at ${edited.host}.`
          }
        />
        <AlertKinds chosen={alerts} onChange={setAlerts} />
      </Form>
    </Dialog>
  );
}
