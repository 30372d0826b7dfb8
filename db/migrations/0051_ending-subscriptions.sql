-- Once an operator has changed the plan, the subscription that paid for another one only ends. An instance of an earlier
-- release does not know the state `ending`: it would write down how the subscription stands at the processor, and with
-- that take the change back. What it writes is left out, as if the row had changed meanwhile.
CREATE FUNCTION keep_ending_subscription() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RETURN NULL;
END $$;--> statement-breakpoint
CREATE TRIGGER keep_ending_subscription BEFORE UPDATE OF state ON plan_subscriptions FOR EACH ROW
WHEN (OLD.state = 'ending' AND OLD.id = NEW.id AND NEW.state <> 'ending'
  AND (NEW.state <> 'ended' OR current_setting('gateway.ended_subscription', true) IS DISTINCT FROM OLD.id))
EXECUTE FUNCTION keep_ending_subscription();
