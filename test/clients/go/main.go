// Checks of OpenAI's client in Go. Each prints what became of it as a line of JSON.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"
)

const model = "openai/gpt-4o-mini"

var client = openai.NewClient(
	option.WithBaseURL(os.Getenv("GATEWAY_URL")+"/v1"),
	option.WithAPIKey(os.Getenv("SECRET_KEY")),
	option.WithMaxRetries(0),
)

type check struct {
	tried string
	run   func(context.Context) error
}

var checks = []check{
	{"models: list and retrieve", models},
	{"chat: answer and usage", chat},
	{"chat: streamed, with usage", streamed},
	{"tools: a call, its result sent back", tools},
	{"structured output: by JSON schema", structured},
	{"embeddings", embeddings},
	{"files: create, content, delete", files},
	{"errors: status, code and type", failures},
	{"retries", retries},
	{"timeouts", timeouts},
}

func main() {
	for _, one := range checks {
		ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
		outcome := map[string]any{"client": "openai-go", "tried": one.tried, "error": nil}
		if err := one.run(ctx); err != nil {
			outcome["error"] = err.Error()
		}
		cancel()
		line, _ := json.Marshal(outcome)
		fmt.Println(string(line))
	}
}

func ask(fields openai.ChatCompletionNewParams) openai.ChatCompletionNewParams {
	if fields.Model == "" {
		fields.Model = model
	}
	fields.Messages = append([]openai.ChatCompletionMessageParamUnion{openai.UserMessage("How are you?")}, fields.Messages...)
	return fields
}

func models(ctx context.Context) error {
	pages := client.Models.ListAutoPaging(ctx)
	found := false
	for pages.Next() {
		found = found || pages.Current().ID == model
	}
	if err := pages.Err(); err != nil || !found {
		return fmt.Errorf("listed: %v, %w", found, err)
	}
	one, err := client.Models.Get(ctx, model)
	if err != nil || one.OwnedBy != "openai" {
		return fmt.Errorf("retrieved %v, %w", one, err)
	}
	return nil
}

func chat(ctx context.Context) error {
	answer, err := client.Chat.Completions.New(ctx, ask(openai.ChatCompletionNewParams{}))
	if err != nil {
		return err
	}
	if answer.Choices[0].Message.Content == "" || answer.Usage.TotalTokens == 0 {
		return fmt.Errorf("answered %s", answer.RawJSON())
	}
	return nil
}

func streamed(ctx context.Context) error {
	fields := ask(openai.ChatCompletionNewParams{})
	fields.StreamOptions.IncludeUsage = param.NewOpt(true)
	stream := client.Chat.Completions.NewStreaming(ctx, fields)
	whole := openai.ChatCompletionAccumulator{}
	for stream.Next() {
		if !whole.AddChunk(stream.Current()) {
			return errors.New("a chunk belongs to another answer")
		}
	}
	if err := stream.Err(); err != nil {
		return err
	}
	if whole.Choices[0].Message.Content == "" || whole.Usage.CompletionTokens == 0 {
		return fmt.Errorf("gathered %+v", whole.ChatCompletion)
	}
	return nil
}

var weather = openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
	Name: "get_weather",
	Parameters: shared.FunctionParameters{
		"type":       "object",
		"properties": map[string]any{"city": map[string]string{"type": "string"}},
		"required":   []string{"city"},
	},
})

func tools(ctx context.Context) error {
	fields := ask(openai.ChatCompletionNewParams{Tools: []openai.ChatCompletionToolUnionParam{weather}})
	fields.ToolChoice.OfAuto = param.NewOpt("required")
	first, err := client.Chat.Completions.New(ctx, fields)
	if err != nil {
		return err
	}
	message := first.Choices[0].Message
	var arguments struct{ City *string }
	if len(message.ToolCalls) != 1 ||
		json.Unmarshal([]byte(message.ToolCalls[0].Function.Arguments), &arguments) != nil ||
		arguments.City == nil {
		return fmt.Errorf("called %s", message.RawJSON())
	}
	second, err := client.Chat.Completions.New(ctx, ask(openai.ChatCompletionNewParams{
		Messages: []openai.ChatCompletionMessageParamUnion{
			message.ToParam(),
			openai.ToolMessage("rain", message.ToolCalls[0].ID),
		},
	}))
	if err != nil || second.Choices[0].Message.Content == "" {
		return fmt.Errorf("answered %v, %w", second, err)
	}
	return nil
}

func structured(ctx context.Context) error {
	fields := ask(openai.ChatCompletionNewParams{})
	fields.ResponseFormat.OfJSONSchema = &shared.ResponseFormatJSONSchemaParam{
		JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
			Name:   "person",
			Strict: param.NewOpt(true),
			Schema: map[string]any{
				"type":                 "object",
				"properties":           map[string]any{"age": map[string]string{"type": "integer"}},
				"required":             []string{"age"},
				"additionalProperties": false,
			},
		},
	}
	answer, err := client.Chat.Completions.New(ctx, fields)
	if err != nil {
		return err
	}
	var person struct{ Age *int }
	if json.Unmarshal([]byte(answer.Choices[0].Message.Content), &person) != nil || person.Age == nil {
		return fmt.Errorf("answered %q", answer.Choices[0].Message.Content)
	}
	return nil
}

func embeddings(ctx context.Context) error {
	answer, err := client.Embeddings.New(ctx, openai.EmbeddingNewParams{
		Model: "sandbox/embed",
		Input: openai.EmbeddingNewParamsInputUnion{OfArrayOfStrings: []string{"one", "two"}},
	})
	if err != nil || len(answer.Data) != 2 || len(answer.Data[0].Embedding) == 0 {
		return fmt.Errorf("answered %v, %w", answer, err)
	}
	return nil
}

func files(ctx context.Context) error {
	created, err := client.Files.New(ctx, openai.FileNewParams{
		File:    openai.File(strings.NewReader("notes"), "notes.txt", "text/plain"),
		Purpose: openai.FilePurposeUserData,
	})
	if err != nil {
		return err
	}
	content, err := client.Files.Content(ctx, created.ID)
	if err != nil || content.ContentLength != 5 {
		return fmt.Errorf("content %v, %w", content, err)
	}
	content.Body.Close()
	deleted, err := client.Files.Delete(ctx, created.ID)
	if err != nil || !deleted.Deleted {
		return fmt.Errorf("deleted %v, %w", deleted, err)
	}
	return nil
}

func failures(ctx context.Context) error {
	for _, one := range []struct {
		status int
		code   string
		model  string
		key    string
	}{
		{401, "invalid_api_key", model, "sk-wrong"},
		{402, "insufficient_credits", model, os.Getenv("GATEWAY_POOR_KEY")},
		{403, "wrong_key_kind", model, os.Getenv("GATEWAY_MANAGEMENT_KEY")},
		{404, "model_not_found", "openai/none", os.Getenv("SECRET_KEY")},
		{502, "provider_error", "sandbox/error-500", os.Getenv("SECRET_KEY")},
	} {
		fields := ask(openai.ChatCompletionNewParams{Model: one.model})
		_, err := client.Chat.Completions.New(ctx, fields, option.WithAPIKey(one.key))
		var failure *openai.Error
		if !errors.As(err, &failure) || failure.StatusCode != one.status || failure.Code != one.code {
			return fmt.Errorf("%d: %w", one.status, err)
		}
		if !strings.HasSuffix(failure.Type, "_error") {
			return fmt.Errorf("%d has the type %q", one.status, failure.Type)
		}
	}
	return nil
}

func retries(ctx context.Context) error {
	fields := ask(openai.ChatCompletionNewParams{Model: "test/recovering-go"})
	answer, err := client.Chat.Completions.New(ctx, fields, option.WithMaxRetries(2))
	if err != nil || answer.Choices[0].Message.Content != "recovered" {
		return fmt.Errorf("answered %v, %w", answer, err)
	}
	return nil
}

func timeouts(ctx context.Context) error {
	fields := ask(openai.ChatCompletionNewParams{Model: "test/silent"})
	began := time.Now()
	_, err := client.Chat.Completions.New(ctx, fields, option.WithRequestTimeout(500*time.Millisecond))
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 20*time.Second {
		return fmt.Errorf("after %v: %w", time.Since(began), err)
	}
	return nil
}
