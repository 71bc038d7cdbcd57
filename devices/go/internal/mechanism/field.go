package mechanism

// Field is GF(characteristic^degree); Polynomial has its coefficients least power first.
type Field struct {
	Characteristic int64   `json:"characteristic"`
	Degree         int64   `json:"degree"`
	Polynomial     []int64 `json:"polynomial"`
}

// has tells whether the field has the g elements 0 ... g-1.
func (f Field) has(g int64) bool {
	if f.Degree < 1 || !isPower(f.Characteristic, f.Degree, g) {
		return false
	}
	if f.Degree == 1 {
		return true
	}
	if int64(len(f.Polynomial)) != f.Degree+1 || f.Polynomial[f.Degree] != 1 {
		return false
	}
	for _, c := range f.Polynomial {
		if c < 0 || c >= f.Characteristic {
			return false
		}
	}
	return true
}

func (f Field) coefficients(element int64) []int64 {
	c := make([]int64, f.Degree)
	for i := range c {
		c[i] = element % f.Characteristic
		element /= f.Characteristic
	}
	return c
}

func (f Field) element(coefficients []int64) int64 {
	e := int64(0)
	for i := f.Degree - 1; i >= 0; i-- {
		e = e*f.Characteristic + coefficients[i]
	}
	return e
}

func (f Field) add(a, b int64) int64 {
	r := f.Characteristic
	x, y := f.coefficients(a), f.coefficients(b)
	for i := range x {
		x[i] = (x[i] + y[i]) % r
	}
	return f.element(x)
}

func (f Field) multiply(a, b int64) int64 {
	r, e := f.Characteristic, int(f.Degree)
	if e == 1 {
		return int64(uint64(a) * uint64(b) % uint64(r)) // a and b are below 2^32
	}
	x, y := f.coefficients(a), f.coefficients(b)
	product := make([]int64, 2*e)
	for i, c := range x {
		for j, d := range y {
			product[i+j] = (product[i+j] + c*d) % r
		}
	}
	for i := 2*e - 1; i >= e; i-- {
		lead := product[i]
		for j, c := range f.Polynomial {
			product[i-e+j] = (product[i-e+j] + (r-lead)*c) % r
		}
	}
	return f.element(product)
}

// hash returns H_a(v), a symbol below g.
func (p *Parameters) hash(a, v int64) int64 {
	sum, place := int64(0), v*p.Stride%p.K
	for range p.Digits {
		sum = p.Field.add(sum, p.Field.multiply(a%p.G, place%p.G))
		a, place = a/p.G, place/p.G
	}
	return sum
}

// isPower tells whether base^exponent is the power, for a base of at least 2.
func isPower(base, exponent, power int64) bool {
	if base < 2 || exponent < 0 {
		return false
	}
	product := int64(1)
	for ; exponent > 0; exponent-- {
		if product > power/base {
			return false
		}
		product *= base
	}
	return product == power
}

func commonFactor(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
