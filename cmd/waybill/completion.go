package main

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help has the examples.
func (completionCmd) Help() string {
	return `Examples:

	waybill completion bash >/etc/bash_completion.d/waybill
	waybill completion zsh >"${fpath[1]}/_waybill"
	waybill completion fish >~/.config/fish/completions/waybill.fish`
}

// The scripts ask the command itself, so they stay right when it changes.
var completionScripts = map[string]string{
	"bash": `_waybill() {
	local IFS=$'\n'
	COMPREPLY=($(compgen -W "$(waybill __complete "${COMP_WORDS[@]:1:COMP_CWORD-1}" 2>/dev/null)" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _waybill waybill
`,
	"zsh": `#compdef waybill
_waybill() {
	local -a candidates
	candidates=("${(@f)$(waybill __complete "${(@)words[2,CURRENT-1]}" 2>/dev/null)}")
	if [[ -n "${candidates[*]}" ]]; then compadd -- "${candidates[@]}"; else _files; fi
}
if [[ "${funcstack[1]}" = "_waybill" ]]; then _waybill "$@"; else compdef _waybill waybill; fi
`,
	"fish": `complete -c waybill -f -a '(waybill __complete (commandline -opc)[2..] 2>/dev/null)'
`,
}

func (c *completionCmd) Run(a *app) error { return a.print(completionScripts[c.Shell]) }

// completeCmd answers the scripts: what may follow the words so far.
type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

func (c *completeCmd) Run(a *app, parser *kong.Kong) error {
	var b strings.Builder
	for _, candidate := range candidates(parser.Model.Node, c.Words) {
		fmt.Fprintln(&b, candidate)
	}
	return a.print(b.String())
}

// candidates walks down the commands that the words name.
func candidates(node *kong.Node, words []string) []string {
	flags := node.Flags
	var value *kong.Flag // whose value comes next
	for _, word := range words {
		switch {
		case value != nil:
			value = nil
		case strings.HasPrefix(word, "-"):
			if flag := flagNamed(flags, word); flag != nil && !flag.IsBool() && !strings.Contains(word, "=") {
				value = flag
			}
		default:
			if next := childNamed(node, word); next != nil {
				node = next
				flags = append(flags[:len(flags):len(flags)], node.Flags...)
			}
		}
	}
	if value != nil {
		return enumOf(value.Value)
	}
	var all []string
	for _, child := range node.Children {
		if !child.Hidden {
			all = append(all, child.Name)
		}
	}
	for _, positional := range node.Positional {
		all = append(all, enumOf(positional)...)
	}
	for _, flag := range flags {
		if !flag.Hidden {
			all = append(all, "--"+flag.Name)
		}
	}
	return all
}

func childNamed(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name {
			return child
		}
	}
	return nil
}

func flagNamed(flags []*kong.Flag, word string) *kong.Flag {
	name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
	for _, flag := range flags {
		if flag.Name == name || flag.Short != 0 && string(flag.Short) == name {
			return flag
		}
	}
	return nil
}

func enumOf(value *kong.Value) []string {
	var all []string
	for _, name := range strings.Split(value.Enum, ",") {
		if name = strings.TrimSpace(name); name != "" {
			all = append(all, name)
		}
	}
	return all
}
