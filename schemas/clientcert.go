package schemas

// ClientCertificate is what an endpoint's receiver knows Milena by (mutual TLS).
type ClientCertificate struct {
	Certificate string `json:"certificate"` // PEM: the leaf first, then its chain; it is no secret
	Key         string `json:"key"`         // PEM (PKCS #8, PKCS #1 or SEC 1), sealed
}
