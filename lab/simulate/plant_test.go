package simulate

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// mutant is a change to a file's text, and a number by which it is switched on.
type mutant struct {
	number   int
	old, new string
}

// plant puts mutants into a file so that one of them, or none, can be picked when
// the program runs: the function around each is there once more, with the change
// and under another name, and the original calls that if the package's variable
// planted has its number.
func plant(source []byte, mutants []mutant) (string, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", source, parser.SkipObjectResolution)
	if err != nil {
		return "", err
	}
	text, copies := string(source), ""
	at := func(p token.Pos) int { return files.Position(p).Offset }
	calls := map[*ast.FuncDecl]string{}
	for _, m := range mutants {
		if n := strings.Count(text, m.old); n != 1 {
			return "", fmt.Errorf("%q is there %d times", m.old, n)
		}
		begin := strings.Index(text, m.old)
		i := slices.IndexFunc(file.Decls, func(d ast.Decl) bool {
			f, ok := d.(*ast.FuncDecl)
			return ok && at(f.Body.Lbrace) < begin && begin+len(m.old) <= at(f.End())
		})
		if i < 0 {
			return "", fmt.Errorf("%q is not within a function", m.old)
		}
		f := file.Decls[i].(*ast.FuncDecl)
		name := fmt.Sprintf("%s%d", f.Name.Name, m.number)
		copies += "\n" + text[at(f.Pos()):at(f.Name.Pos())] + name + text[at(f.Name.End()):begin] + m.new + text[begin+len(m.old):at(f.End())] + "\n"
		calls[f] += fmt.Sprintf("\n\tif planted == %d {\n\t\t%s\n\t}\n", m.number, call(f, name))
	}
	for _, d := range slices.Backward(file.Decls) {
		if f, ok := d.(*ast.FuncDecl); ok {
			brace := at(f.Body.Lbrace) + 1
			text = text[:brace] + calls[f] + text[brace:]
		}
	}
	return text + copies, nil
}

// call is the text of a call of a function under another name, in its own body,
// with its own arguments.
func call(f *ast.FuncDecl, name string) string {
	if f.Recv != nil {
		name = f.Recv.List[0].Names[0].Name + "." + name
	}
	var args []string
	for _, p := range f.Type.Params.List {
		for _, n := range p.Names {
			args = append(args, n.Name)
		}
	}
	name += "(" + strings.Join(args, ", ") + ")"
	if f.Type.Results != nil {
		return "return " + name
	}
	return name + "\n\t\treturn"
}
