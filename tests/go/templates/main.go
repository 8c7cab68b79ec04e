// Prints what the hash of a pod template depends on: `types` prints the Go types that a PodTemplateSpec
// is made of, `hashes SEED COUNT` prints generated templates with their hashes, one a line.
//
// The outputs are kept in crates/workloads/src/template_hash (types.txt, recorded.jsonl).
package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand"
	"os"
	"reflect"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/dump"
)

var (
	quantityType    = reflect.TypeFor[resource.Quantity]()
	timeType        = reflect.TypeFor[metav1.Time]()
	intOrStringType = reflect.TypeFor[intstr.IntOrString]()
	fieldsType      = reflect.TypeFor[metav1.FieldsV1]()
)

func main() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "types":
		printTypes()
	case len(os.Args) == 4 && os.Args[1] == "hashes":
		seed, seedErr := strconv.ParseInt(os.Args[2], 10, 64)
		count, countErr := strconv.Atoi(os.Args[3])
		if seedErr != nil || countErr != nil {
			fail("SEED and COUNT are numbers")
		}
		printHashes(rand.New(rand.NewSource(seed)), count)
	case len(os.Args) == 2 && os.Args[1] == "dump":
		var template corev1.PodTemplateSpec
		if err := json.NewDecoder(os.Stdin).Decode(&template); err != nil {
			fail(err.Error())
		}
		template = *stored(&template)
		fmt.Println(dump.ForHash(template))
		fmt.Println(hash(&template, nil))
	default:
		fail("usage: templates types | hashes SEED COUNT | dump < TEMPLATE")
	}
}

func fail(why string) {
	fmt.Fprintln(os.Stderr, why)
	os.Exit(1)
}

// Types are numbered in the order in which they are first met.
type table struct {
	numbers map[reflect.Type]int
	queue   []reflect.Type
}

func (t *table) number(of reflect.Type) int {
	if number, ok := t.numbers[of]; ok {
		return number
	}
	number := len(t.queue)
	t.numbers[of] = number
	t.queue = append(t.queue, of)
	return number
}

func printTypes() {
	t := &table{numbers: map[reflect.Type]int{}}
	t.number(reflect.TypeFor[corev1.PodTemplateSpec]())
	for at := 0; at < len(t.queue); at++ {
		of := t.queue[at]
		fmt.Printf("%d %s %s\n", at, of.String(), t.describe(of))
		if of.Kind() != reflect.Struct || isSpecial(of) {
			continue
		}
		for i := range of.NumField() {
			field := of.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name == "" {
				name = "."
			}
			fmt.Printf(" %s %s %d\n", field.Name, name, t.number(field.Type))
		}
	}
}

func isSpecial(of reflect.Type) bool {
	return of == quantityType || of == timeType || of == intOrStringType || of == fieldsType
}

func (t *table) describe(of reflect.Type) string {
	switch {
	case of == quantityType:
		return "quantity"
	case of == timeType:
		return "time"
	case of == intOrStringType:
		return "int-or-string"
	case of == fieldsType:
		return "fields"
	}
	switch of.Kind() {
	case reflect.Struct:
		return "struct"
	case reflect.Pointer:
		return fmt.Sprintf("pointer %d", t.number(of.Elem()))
	case reflect.Slice:
		return fmt.Sprintf("list %d", t.number(of.Elem()))
	case reflect.Map:
		return fmt.Sprintf("map %d %d", t.number(of.Key()), t.number(of.Elem()))
	case reflect.String:
		return "text"
	case reflect.Bool:
		return "flag"
	case reflect.Int32, reflect.Int64:
		return "number"
	}
	fail("a kind of type that is not expected: " + of.String())
	return ""
}

// stored returns the template as a controller gets it: decoded from protobuf.
func stored(template *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	bytes, err := template.Marshal()
	if err != nil {
		fail(err.Error())
	}
	result := &corev1.PodTemplateSpec{}
	if err := result.Unmarshal(bytes); err != nil {
		fail(err.Error())
	}
	return result
}

func hash(template *corev1.PodTemplateSpec, collisions *int32) string {
	hasher := fnv.New32a()
	fmt.Fprintf(hasher, "%v", dump.ForHash(*template))
	if collisions != nil {
		bytes := make([]byte, 8)
		binary.LittleEndian.PutUint32(bytes, uint32(*collisions))
		hasher.Write(bytes)
	}
	return utilrand.SafeEncodeString(fmt.Sprint(hasher.Sum32()))
}

func printHashes(random *rand.Rand, count int) {
	for i := range count {
		template := corev1.PodTemplateSpec{}
		// Every tenth template is nearly full, so that each field is seen.
		density := 0.12
		if i%10 == 0 {
			density = 0.5
		}
		fill(random, reflect.ValueOf(&template).Elem(), density, 0)
		var collisions *int32
		if i%7 == 0 {
			number := int32(random.Intn(5))
			collisions = &number
		}
		line := map[string]any{"template": template, "hash": hash(stored(&template), collisions)}
		if collisions != nil {
			line["collisions"] = *collisions
		}
		bytes, err := json.Marshal(line)
		if err != nil {
			fail(err.Error())
		}
		fmt.Println(string(bytes))
	}
}

var (
	words = []string{"a", "web", "x.io/y", "ünï ☃", "0", "a b:c]", "\"q\"\n", "nginx:1.27", "<nil>"}
	sizes = []string{
		"0", "1", "100m", "1500m", "128Mi", "1Gi", "1", "7", "1k", "10M", "5", "250u", "3n", "1e3",
		"12e6", "100Ti", "10Ti", "3Pi", "2Ei", "9Ki", "513", "65", "-1", "1000", "4096", "3M",
		"9223372036854775807", "12345678901234567",
	}
)

func fill(random *rand.Rand, value reflect.Value, density float64, depth int) {
	of := value.Type()
	if depth > 12 || (depth > 0 && isOptional(of) && random.Float64() > density) {
		return
	}
	switch of {
	case quantityType:
		value.Set(reflect.ValueOf(resource.MustParse(sizes[random.Intn(len(sizes))])))
		return
	case timeType, reflect.PointerTo(timeType), reflect.TypeFor[[]metav1.ManagedFieldsEntry]():
		// Go prints the time zone of its process with a time.
		return
	case intOrStringType:
		if random.Intn(2) == 0 {
			value.Set(reflect.ValueOf(intstr.FromInt32(int32(random.Intn(70000)))))
		} else {
			value.Set(reflect.ValueOf(intstr.FromString(words[random.Intn(len(words))])))
		}
		return
	}
	switch of.Kind() {
	case reflect.Struct:
		for i := range of.NumField() {
			fill(random, value.Field(i), density, depth+1)
		}
	case reflect.Pointer:
		value.Set(reflect.New(of.Elem()))
		fill(random, value.Elem(), density, depth+1)
	case reflect.Slice:
		value.Set(reflect.MakeSlice(of, 1+random.Intn(2), 3))
		for i := range value.Len() {
			fill(random, value.Index(i), density*0.7, depth+1)
		}
	case reflect.Map:
		value.Set(reflect.MakeMap(of))
		for range 1 + random.Intn(3) {
			key, item := reflect.New(of.Key()).Elem(), reflect.New(of.Elem()).Elem()
			key.SetString(words[random.Intn(len(words))])
			fill(random, item, 1, depth+1)
			value.SetMapIndex(key, item)
		}
	case reflect.String:
		value.SetString(words[random.Intn(len(words))])
	case reflect.Bool:
		value.SetBool(random.Intn(2) == 0)
	case reflect.Int32, reflect.Int64:
		value.SetInt(int64(random.Int31()) - 1<<29)
	}
}

// isOptional: whether values of the type are left out of most templates.
func isOptional(of reflect.Type) bool {
	return of.Kind() != reflect.Struct || isSpecial(of)
}
