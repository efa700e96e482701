package kafka

// Role is a part of a process, with rights of its own.
type Role string

const (
	RoleDispatcher Role = "dispatcher"
	RoleReleaser   Role = "releaser"
	RoleRouter     Role = "router"
)

// rightsOf is what a role needs on the cluster. Describe comes with Read and Write;
// DescribeConfigs is what the start-up check itself needs, and a plan names it when
// it is missing.
func rightsOf(c TopicsConfig, role Role, tiers []string) []right {
	n := c.Names
	var read, write []string
	switch role {
	case RoleDispatcher:
		read = []string{n.Deliveries(), n.Hold(), n.Health(), n.Endpoints()}
		// deliveries: what a producer put into the wrong partition is forwarded
		write = append([]string{n.Deliveries(), n.Hold(), n.DLQ(), n.Attempts(), n.Health(), n.Notices()}, tiers...)
	case RoleReleaser:
		read = tiers
		write = append([]string{n.Deliveries(), n.DLQ()}, tiers...)
	case RoleRouter:
		read = append([]string{n.Endpoints()}, c.Sources...)
		write = []string{n.Deliveries(), n.DLQ()}
	}
	var out []right
	for _, t := range read {
		out = append(out, right{"Read", "Topic", t})
	}
	for _, t := range write {
		out = append(out, right{"Write", "Topic", t})
	}
	return append(out, right{"Read", "Group", n.Group(string(role))})
}
