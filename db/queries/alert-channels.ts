import type { AlertKind, ChatType } from "../../src/lib/alerts.ts";
import { type Database, type DatabaseTransaction, inOneSnapshot } from "../client.ts";
import { type RecordOf, type RowOf, recordReader } from "../rows.ts";
import { alertChannels, alertStates } from "../schema/alerts.ts";
import { type Seal, sealingKeyId } from "./master-key.ts";

const settingsOf = recordReader(alertChannels, "sealedUrl", "urlChangedAt", "version");
const stateOf = recordReader(
  alertStates,
  "sequence",
  "dueAt",
  "failedAttempts",
  "hourStartedAt",
  "hourMessages",
  "testedAt",
);

/** A channel with the outcome of its last messages. */
export type AlertChannel = RecordOf<
  typeof alertChannels,
  "sealedUrl" | "urlChangedAt" | "version"
> &
  Omit<ReturnType<typeof stateOf>, "channelId" | "organizationId">;

type ChannelRow = RowOf<typeof alertChannels> & RowOf<typeof alertStates>;

const channelOf = (row: ChannelRow): AlertChannel => {
  const { channelId: _, ...state } = stateOf(row);
  return { ...state, ...settingsOf(row) };
};

const selectChannels = (sql: Database | DatabaseTransaction) =>
  sql`SELECT s.*, c.* FROM alert_channels c JOIN alert_states s ON s.channel_id = c.id`;

/** Lists the channels of an organization, newest first, with their total number. Mail to members is left out. */
export function listAlertChannels(
  sql: Database,
  page: { readonly organizationId: string; readonly limit: number; readonly offset: number },
): Promise<{ channels: AlertChannel[]; total: number }> {
  return inOneSnapshot(sql, async (snapshot) => {
    const [count] = await snapshot<{ total: bigint }[]>`
      SELECT count(*) AS total FROM alert_channels
      WHERE organization_id = ${page.organizationId} AND member_id IS NULL`;
    const rows = await snapshot<ChannelRow[]>`
      ${selectChannels(snapshot)} WHERE c.organization_id = ${page.organizationId} AND c.member_id IS NULL
      ORDER BY c.created_at DESC, c.id DESC LIMIT ${page.limit} OFFSET ${page.offset}`;
    return { channels: rows.map(channelOf), total: Number(count!.total) };
  });
}

interface ChannelName {
  readonly id: string;
  readonly organizationId: string;
}

/** Finds a channel of an organization with its sealed URL. */
export async function findAlertChannel(
  sql: Database | DatabaseTransaction,
  { id, organizationId }: ChannelName,
): Promise<{ readonly channel: AlertChannel; readonly sealedUrl: Uint8Array } | undefined> {
  const [row] = await sql<ChannelRow[]>`
    ${selectChannels(sql)}
    WHERE c.id = ${id} AND c.organization_id = ${organizationId} AND c.member_id IS NULL`;
  return row && { channel: channelOf(row), sealedUrl: row.sealed_url! };
}

/** Finds a member's choice of alerts by mail. Undefined: the member has never chosen. */
export async function findMemberAlerts(
  sql: Database | DatabaseTransaction,
  memberId: string,
): Promise<AlertChannel | undefined> {
  const [row] = await sql<ChannelRow[]>`${selectChannels(sql)} WHERE c.member_id = ${memberId}`;
  return row && channelOf(row);
}

export interface NewAlertChannel extends ChannelName {
  readonly type: ChatType;
  readonly name: string;
  readonly alerts: readonly AlertKind[];
  readonly host: string;
  readonly url: Seal;
  readonly enabled: boolean;
}

/**
 * Creates a channel. It gets the alerts from now on. Returns undefined if the organization has `max` channels already.
 * The lock of the organization makes that exact across instances.
 */
export function insertAlertChannel(
  sql: Database,
  channel: NewAlertChannel,
  max: number,
): Promise<AlertChannel | undefined> {
  return sql.begin(async (transaction) => {
    const url = channel.url(await sealingKeyId(transaction));
    await transaction`SELECT 1 FROM organizations WHERE id = ${channel.organizationId} FOR NO KEY UPDATE`;
    // A separate statement, because its snapshot is newer than the lock.
    const inserted = await transaction`
      INSERT INTO alert_channels (id, organization_id, type, name, alerts, sealed_url, host, enabled, created_at,
        url_changed_at, disabled_at, disabled_by)
      SELECT ${channel.id}, ${channel.organizationId}, ${channel.type}, ${channel.name},
        ${transaction.array([...channel.alerts])}::text[], ${url as Buffer}, ${channel.host}, ${channel.enabled},
        clock_timestamp(), clock_timestamp(), CASE WHEN NOT ${channel.enabled} THEN clock_timestamp() END,
        CASE WHEN NOT ${channel.enabled} THEN 'request' END
      WHERE (SELECT count(*) FROM alert_channels
        WHERE organization_id = ${channel.organizationId} AND member_id IS NULL) < ${max}`;
    if (inserted.count === 0) return undefined;
    await insertState(transaction, channel);
    return (await findAlertChannel(transaction, channel))!.channel;
  });
}

/** Begins after the last alert of the organization. */
async function insertState(sql: DatabaseTransaction, { id, organizationId }: ChannelName) {
  await sql`INSERT INTO alert_states (channel_id, organization_id, sequence)
    SELECT ${id}, ${organizationId}, coalesce((SELECT last_sequence FROM alert_numbering), 0)`;
}

export interface AlertChannelChanges {
  readonly name?: string | undefined;
  readonly alerts?: readonly AlertKind[] | undefined;
  readonly enabled?: boolean | undefined;
  readonly url?: { readonly seal: Seal; readonly host: string } | undefined;
}

/**
 * Changes the given settings, and forgets earlier failures. A channel that is enabled gets the alerts that wait.
 * Returns undefined if the organization has no such channel.
 */
export function updateAlertChannel(
  sql: Database,
  name: ChannelName,
  changes: AlertChannelChanges,
): Promise<AlertChannel | undefined> {
  return sql.begin(async (transaction) => {
    const { url } = changes;
    const sealed = url?.seal(await sealingKeyId(transaction));
    const { count } = await transaction`
      UPDATE alert_channels SET name = coalesce(${changes.name ?? null}, name),
        sealed_url = coalesce(${(sealed as Buffer | undefined) ?? null}, sealed_url),
        host = coalesce(${url?.host ?? null}, host),
        url_changed_at = CASE WHEN ${url !== undefined} THEN clock_timestamp() ELSE url_changed_at END,
        ${switched(transaction, changes)}
      WHERE id = ${name.id} AND organization_id = ${name.organizationId} AND member_id IS NULL`;
    if (count === 0) return undefined;
    await beginAgain(transaction, name.id);
    return (await findAlertChannel(transaction, name))!.channel;
  });
}

function switched(sql: DatabaseTransaction, { alerts, enabled }: AlertChannelChanges) {
  const isEnabled = sql`coalesce(${enabled ?? null}::boolean, enabled)`;
  return sql`version = version + 1, enabled = ${isEnabled},
    alerts = coalesce(${alerts === undefined ? null : sql.array([...alerts])}::text[], alerts),
    disabled_at = CASE WHEN NOT ${isEnabled} THEN coalesce(disabled_at, clock_timestamp()) END,
    disabled_by = CASE WHEN NOT ${isEnabled} THEN coalesce(disabled_by, 'request') END`;
}

/** Makes the channel due, so that its owner reads its settings and its alerts again. */
async function beginAgain(sql: DatabaseTransaction, id: string): Promise<void> {
  await sql`UPDATE alert_states s SET failed_attempts = 0,
      due_at = CASE WHEN c.enabled THEN clock_timestamp() END
    FROM alert_channels c WHERE c.id = s.channel_id AND s.channel_id = ${id}`;
}

export async function deleteAlertChannel(
  sql: Database,
  { id, organizationId }: ChannelName,
): Promise<boolean> {
  return sql.begin(async (transaction) => {
    const deleted = await transaction`DELETE FROM alert_channels
      WHERE id = ${id} AND organization_id = ${organizationId} AND member_id IS NULL`;
    return deleted.count > 0;
  });
}

/** Stores a member's choice of alerts by mail. An empty one disables the mail. */
export function storeMemberAlerts(
  sql: Database,
  { id, organizationId, memberId }: ChannelName & { readonly memberId: string },
  alerts: readonly AlertKind[],
): Promise<AlertChannel> {
  return sql.begin(async (transaction) => {
    const enabled = alerts.length > 0;
    // Waits for a removal of the member, and keeps two first choices from colliding.
    await transaction`SELECT 1 FROM members WHERE id = ${memberId} FOR NO KEY UPDATE`;
    const before = await findMemberAlerts(transaction, memberId);
    if (before === undefined) {
      await transaction`INSERT INTO alert_channels (id, organization_id, member_id, type, name, alerts, host, enabled,
          created_at, url_changed_at, disabled_at, disabled_by)
        SELECT ${id}, ${organizationId}, ${memberId}, 'email', '', ${transaction.array([...alerts])}::text[], '',
          ${enabled}, clock_timestamp(), clock_timestamp(), CASE WHEN NOT ${enabled} THEN clock_timestamp() END,
          CASE WHEN NOT ${enabled} THEN 'request' END`;
      await insertState(transaction, { id, organizationId });
    } else {
      await transaction`UPDATE alert_channels SET ${switched(transaction, { alerts, enabled })}
        WHERE id = ${before.id}`;
      // Alerts of before the choice are not sent, unless the mail was on.
      if (!before.enabled) {
        await transaction`UPDATE alert_states
          SET sequence = greatest(sequence, coalesce((SELECT last_sequence FROM alert_numbering), 0))
          WHERE channel_id = ${before.id}`;
      }
      await beginAgain(transaction, before.id);
    }
    return (await findMemberAlerts(transaction, memberId))!;
  });
}

/** Seconds between two tests of a channel. */
const TEST_PAUSE_SECONDS = 10;

/**
 * Records a test, and returns the name of the organization. Returns undefined if the last test was less than 10 seconds
 * ago.
 */
export async function claimAlertTest(
  sql: Database,
  channelId: string,
): Promise<string | undefined> {
  const [row] = await sql<{ name: string }[]>`
    UPDATE alert_states s SET tested_at = clock_timestamp() FROM organizations o
    WHERE s.channel_id = ${channelId} AND o.id = s.organization_id AND (s.tested_at IS NULL
      OR s.tested_at < clock_timestamp() - make_interval(secs => ${TEST_PAUSE_SECONDS}))
    RETURNING o.name`;
  return row?.name;
}
